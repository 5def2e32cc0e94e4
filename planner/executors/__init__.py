"""Executors, which carry out plans on a cluster: the interface, and the simulated cluster."""
