"""Capacity questions: how many more jobs fit, and which nodes a set of jobs needs."""
