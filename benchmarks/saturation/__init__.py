"""The openb cluster filled in arrival order until it is full: published online policies beside gpuplan."""
