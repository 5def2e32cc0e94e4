"""Periodic epochs: when to plan, what to remember, what to tell."""
