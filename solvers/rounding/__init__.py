"""Concrete places for what a relaxation or the block model counts."""
