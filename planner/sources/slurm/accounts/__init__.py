"""Accounts, users and QOS of a Slurm cluster: what they limit."""
