"""From a verified target to a plan: what changes, in which order, on which conditions, and why."""

from gpuplan.planner.plan_builder.draft import draft

__all__ = ["draft"]
