"""The rules of the verifier: one file per rule, or for a few similar rules."""
