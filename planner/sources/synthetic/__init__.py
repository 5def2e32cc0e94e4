"""Synthetic workloads, drawn from workload profiles."""
