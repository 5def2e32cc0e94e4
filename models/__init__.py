"""Data model, MILP formulation and verifier: pure code without I/O, solver or clock."""
