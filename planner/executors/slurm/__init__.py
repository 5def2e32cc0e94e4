"""Executor for a Slurm cluster, through the commands that its operators have."""
