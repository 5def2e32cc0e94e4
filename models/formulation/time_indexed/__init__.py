"""Columns and rows of later time slots."""
