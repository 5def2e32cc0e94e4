"""Exchanges of jobs for others that a guarantee is owed to."""
