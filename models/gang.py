"""Gang: how many replicas a job starts with, and how fast so many of them are."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from pydantic import Field, field_validator, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.units import LARGEST_COUNT, MILLI, AtLeastOne, Milli, Name, print_milli

_Speeds: TypeAlias = dict[Annotated[int, Field(ge=1, le=LARGEST_COUNT)], Milli]


class Gang(Noun):
    """How many replicas start together or not at all, and how fast so many of them are."""

    minimum: AtLeastOne = Field(default=1, alias="min")
    """Replicas that start together or not at all."""
    maximum: AtLeastOne = Field(default=1, alias="max")
    """Replicas that the job can use; more than `min` makes it elastic."""
    scaling: _Speeds = Field(default_factory=dict)
    """
    Speed by number of replicas, such as `{1: 1.0, 2: 1.9, 4: 3.4}`; empty is in proportion to them.

    Each further replica adds no more than the one before. Between two sizes speed grows evenly, beyond the
    largest it stays, and below the smallest it is in proportion.
    """
    scaling_by_model: dict[Name, _Speeds] = Field(default_factory=dict)
    """
    The same on single GPU models, where it differs from `scaling`. It multiplies the speeds of `gpu_models`;
    where the job names none, all models are equally fast at full size, and only the shape of a table counts.
    """

    @model_validator(mode="before")
    @classmethod
    def _a_number_is_both(cls, data: Any) -> Any:
        return {"min": data, "max": data} if isinstance(data, int) and not isinstance(data, bool) else data

    @field_validator("scaling")
    @classmethod
    def _scaling_is_concave(cls, value: _Speeds) -> _Speeds:
        return _checked(value)

    @field_validator("scaling_by_model")
    @classmethod
    def _scaling_of_each_model_is_concave(cls, value: dict[str, _Speeds]) -> dict[str, _Speeds]:
        return {model: _checked(speeds, f" on {model}") for model, speeds in sorted(value.items())}

    @model_validator(mode="after")
    def _in_order(self) -> Gang:
        if self.minimum > self.maximum:
            raise ValueError(f"expected min <= max, found min {self.minimum} and max {self.maximum}")
        return self

    @property
    def elastic(self) -> bool:
        """True if the number of replicas is the planner's choice."""
        return self.minimum < self.maximum

    @property
    def scaled(self) -> bool:
        """True if replicas of an elastic job may add unequal amounts of speed."""
        return self.elastic and bool(self.scaling or self.scaling_by_model)

    def _table(self, gpu_model: str | None) -> _Speeds:
        """Speeds by size on a GPU model; empty where they are in proportion."""
        return self.scaling_by_model.get(gpu_model or "", self.scaling)

    def speed_milli(self, replicas: int, gpu_model: str | None = None) -> int:
        """Speed of so many replicas on a GPU model, in thousandths of what the tables count in."""
        table = self._table(gpu_model)
        if not table:
            return replicas * MILLI
        size, speed = 0, 0
        for larger, faster in table.items():
            if replicas <= larger:
                return max(1, speed + (faster - speed) * (replicas - size) // (larger - size))
            size, speed = larger, faster
        return speed

    def steps(self, gpu_model: str | None = None, *, usual: int = 0) -> tuple[tuple[int, int], ...]:
        """
        (speed, replicas that share it evenly), the first replicas in front, up to the most.

        No replica adds more than one before it. Those up to the `usual` size share evenly what it brings.
        """
        table = self._table(gpu_model)
        between = {size for size in table if usual < size < self.maximum}
        sizes = [0, *sorted({*between, usual or self.maximum, self.maximum})]
        speed = {size: self.speed_milli(size, gpu_model) if size else 0 for size in sizes}
        return tuple((speed[larger] - speed[size], larger - size) for size, larger in pairwise(sizes))

    def sizes(self, gpu_model: str | None = None) -> list[int]:
        """The least and the most replicas, and the sizes of the table between them, in order."""
        table = self._table(gpu_model)
        between = (size for size in table if self.minimum < size < self.maximum)
        return sorted({self.minimum, *between, self.maximum})

    def usual_size(self, contention: float, gpu_model: str | None = None) -> int:
        """
        Replicas with which jobs that all ask for the same complete soonest on average.

            argmin_k ( 1 + contention · k / fewest ) / speed(k)

        with contention the jobs there are for each place of the smallest size: what a job needs by itself,
        and what it keeps from others, which are served as many at a time as the size lets. (Half of them wait
        for it, as many again are still to come.) The sizes of the table are tried. Where speed is a power of
        the size the optimum is known, and does so too: the more jobs, the less for each but the shortest
        (Berg, Vesilo and Harchol-Balter, heSRPT, Performance Evaluation 144, 2020).
        """
        return min(
            self.sizes(gpu_model),
            key=lambda size: (1 + contention * size / self.minimum) / self.speed_milli(size, gpu_model),
        )

    def __hash__(self) -> int:
        """Dicts have no hash."""
        by_model = ((model, tuple(table.items())) for model, table in self.scaling_by_model.items())
        return hash((self.minimum, self.maximum, tuple(self.scaling.items()), *by_model))


def _checked(speeds: dict[int, int], where: str = "") -> dict[int, int]:
    """A table of speeds by size, in order; `where` it applies is told of a wrong one."""
    table = dict(sorted(speeds.items()))
    size, speed, before = 0, 0, None
    for larger, faster in table.items():
        # Measured speeds are rounded: a thousandth more is none.
        each = (faster - speed) / (larger - size)
        if faster == 0:
            raise ValueError(f"expected speeds above 0{where}, found 0 with {larger} replicas")
        if faster < speed:
            raise ValueError(
                f"expected speeds{where} that do not fall with more replicas, found {print_milli(faster)} "
                f"with {larger} after {print_milli(speed)} with {size}"
            )
        if before is not None and each > before + 1:
            raise ValueError(
                f"expected that further replicas{where} add no more speed than those before, found "
                f"{each / MILLI:.3g} for each of those from {size} to {larger}, and {before / MILLI:.3g} for "
                f"each before them"
            )
        size, speed, before = larger, faster, each
    return table
