"""
Parameters of the search: each tuned number with its unit, its meaning, and the case that set it.

Each part has a file, so that heuristics know no parameters of the block model.
"""
