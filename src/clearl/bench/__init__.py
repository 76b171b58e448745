"""Measure the speed of training, next to what this machine could do at best."""
