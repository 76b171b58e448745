"""Tasks as data: what a suite offers, how its environments answer, and what a plan of training is."""
