"""Validation of snapshots: inconsistencies, damage and warnings."""
