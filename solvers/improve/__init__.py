"""Improvers: neighbourhoods, decomposition and column generation on the best plan so far."""
