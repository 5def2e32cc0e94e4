"""Scores of a simulation."""
