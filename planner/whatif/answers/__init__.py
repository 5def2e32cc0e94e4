"""Answers to what-if questions as data."""
