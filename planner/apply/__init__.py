"""Applying a plan: the only way to change a cluster."""
