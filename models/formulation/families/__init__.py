"""Constraint families: one file per rule, each a set of rows over shared columns."""
