"""Data models of explanations."""
