"""A plan as text."""
