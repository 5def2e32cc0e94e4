"""Crash-safe files: atomic writes, locks, databases, the search log."""
