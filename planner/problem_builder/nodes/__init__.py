"""Nodes of the question: groups, free amounts, pools, power."""
