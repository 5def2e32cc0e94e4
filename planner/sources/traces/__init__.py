"""Traces of real clusters, and jobs that come over time."""
