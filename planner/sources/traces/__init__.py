"""Traces of real clusters, and arrivals of jobs over time."""
