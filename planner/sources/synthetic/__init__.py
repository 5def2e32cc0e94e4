"""Synthetic workloads, drawn from profiles."""
