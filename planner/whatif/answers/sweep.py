"""Sweep: one plan for each combination of the values of one or two settings (knobs)."""

from __future__ import annotations

from gpuplan.models.base import Noun
from gpuplan.models.units import Timestamp
from gpuplan.planner.whatif.answers.comparison import PlanFigures


class Knob(Noun):
    """A setting to vary, and its values."""

    name: str
    """Name as given, such as `prices.guarantee` or `quota:research`."""
    values: tuple[str, ...]
    """In the order given."""


class SweepPoint(Noun):
    """One combination of values and the result of planning it."""

    values: tuple[str, ...]
    """One value per knob, in the order of the knobs."""
    figures: PlanFigures | None = None
    failure: str = ""
    """Why planning failed."""
    on_front: bool = False
    """True if no other point is better in one of the weighed figures and at least as good in the other."""


class Sweep(Noun):
    """All combinations; the values of the last knob vary fastest."""

    snapshot: str
    """Fingerprint of the snapshot."""
    policy: str
    """Fingerprint of the policy."""
    epoch: Timestamp
    seed: int
    knobs: tuple[Knob, ...]
    weighed: tuple[str, str]
    """The two figures of the Pareto front."""
    same_points: bool = True
    """True if all points value jobs the same. If not, objectives are not compared and form no front."""
    points: tuple[SweepPoint, ...]

    @property
    def sound(self) -> bool:
        """True if planning succeeded for all points."""
        return not any(point.failure for point in self.points)
