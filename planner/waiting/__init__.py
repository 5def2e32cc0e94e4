"""Why jobs wait once a plan is applied: for each job the most severe reason that applies, with numbers."""

from gpuplan.planner.waiting.diagnose import waiting_reasons

__all__ = ["waiting_reasons"]
