"""Simulation: a trace is replayed epoch by epoch, with the production planner, on a world in memory."""
