"""From pairs of unrolls to updated weights: batches, the learner, its optimisers."""
