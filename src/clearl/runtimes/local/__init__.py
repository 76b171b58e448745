"""Workers and evaluators in processes of this machine, pairs and weights in shared memory."""
