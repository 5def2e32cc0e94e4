"""Exact solvers: MILP, CP-SAT, and an LP for max-min fairness."""
