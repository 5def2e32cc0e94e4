"""formulation.md in code."""
