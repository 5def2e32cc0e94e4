"""Index sets of the model: replica types, node classes, node states and outcomes of running jobs."""
