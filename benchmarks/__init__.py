"""Measurements behind docs/benchmarks.md; never imported by the product."""
