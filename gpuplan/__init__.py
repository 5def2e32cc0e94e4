"""gpuplan: an optimization-based batch planner for GPU clusters."""
