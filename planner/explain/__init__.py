"""Why a job starts, runs or waits, what would make it start, and how queues and nodes stand."""

from gpuplan.planner.explain.job import explain

__all__ = ["explain"]
