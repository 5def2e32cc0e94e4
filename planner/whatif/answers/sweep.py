"""Sweep: one plan for each combination of the values of one or two knobs."""

from __future__ import annotations

from gpuplan.models.base import Noun
from gpuplan.models.units import Timestamp
from gpuplan.planner.whatif.answers.comparison import Figures


class Knob(Noun):
    """What is varied, and how."""

    name: str
    """As it was given, such as `prices.guarantee` or `quota:research`."""
    values: tuple[str, ...]
    """In the order given."""


class SweepPoint(Noun):
    """One combination of values and what became of it."""

    values: tuple[str, ...]
    """One of each knob, in their order."""
    figures: Figures | None = None
    failure: str = ""
    """Why it could not be planned."""
    on_front: bool = False
    """No other point is better in one of the two figures that are weighed and as good in the other."""


class Sweep(Noun):
    """All combinations, the last knob's values varying fastest."""

    snapshot: str
    """Fingerprint."""
    policy: str
    """Fingerprint."""
    epoch: Timestamp
    seed: int
    knobs: tuple[Knob, ...]
    weighed: tuple[str, str]
    """The two figures of the Pareto front."""
    same_points: bool = True
    """Jobs are worth the same in all lines. If not, objectives are not compared and on no front."""
    points: tuple[SweepPoint, ...]

    @property
    def sound(self) -> bool:
        """True if everything could be planned."""
        return not any(point.failure for point in self.points)
