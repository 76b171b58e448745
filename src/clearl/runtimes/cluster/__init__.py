"""Learner, workers and evaluators in processes of many machines, reached by remote calls."""
