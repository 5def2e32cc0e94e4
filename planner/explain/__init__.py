"""Explain one job of a plan (why it starts, runs or waits; what would start it), one queue or one node."""
