"""Build the plan from a verified target: its actions, their order, their preconditions and their reasons."""

from gpuplan.planner.plan_builder.draft import draft

__all__ = ["draft"]
