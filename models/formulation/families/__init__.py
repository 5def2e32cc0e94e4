"""Constraint families: one file a rule, each a set of rows over columns that all share."""
