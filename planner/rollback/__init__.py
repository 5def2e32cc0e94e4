"""Rollback: a plan that undoes what can be undone of an earlier one."""
