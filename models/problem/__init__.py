"""The question of an epoch, frozen: what the formulation and the heuristics are given."""
