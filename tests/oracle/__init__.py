"""The plain reference model, a binary for every replica and place: what formulations are checked against."""
