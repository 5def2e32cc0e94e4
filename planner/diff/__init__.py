"""Differences between a plan and its snapshot, and between a plan and the live cluster."""
