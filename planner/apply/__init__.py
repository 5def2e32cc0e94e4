"""Applying a plan: the only way in which a cluster is changed."""
