"""The planning problem of an epoch as immutable data: the input of the formulation and the heuristics."""
