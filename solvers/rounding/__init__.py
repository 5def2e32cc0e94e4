"""Rounding: nodes and GPUs for what a relaxation or the block model counts."""
