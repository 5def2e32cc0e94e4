"""Why jobs wait once a plan is in force: the most severe reason that applies, with numbers."""

from gpuplan.planner.waiting.diagnose import waiting_reasons

__all__ = ["waiting_reasons"]
