"""Improve the best plan so far: neighbourhoods, decomposition and column generation."""
