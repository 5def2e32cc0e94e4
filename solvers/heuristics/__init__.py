"""Greedy heuristics on the ledger, one step per module."""
