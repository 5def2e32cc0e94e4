"""Greedy: what it decides, step by step, on the ledger."""
