"""Stepping a policy in environments: the actor, the evaluator, and the agent that others load."""
