"""The verifier: checks the rules of a plan independently, without code of the planner that made it."""
