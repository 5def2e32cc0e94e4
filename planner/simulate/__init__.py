"""Simulation: replay of a trace, epoch by epoch, with the production planner on an in-memory world."""
