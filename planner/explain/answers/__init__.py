"""Explanations as data."""
