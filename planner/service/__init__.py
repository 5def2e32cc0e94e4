"""Periodic runs: schedule of epochs, history, log and metrics."""
