"""Applies the changes of a scenario to a world."""
