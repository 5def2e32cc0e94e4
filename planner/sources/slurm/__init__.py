"""Snapshots of a Slurm cluster, from its own commands or from their saved output."""
