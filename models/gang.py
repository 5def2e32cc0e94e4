"""Gang: the number of replicas of a job, and its speed by that number."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, TypeAlias

from pydantic import Field, field_validator, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.units import LARGEST_COUNT, MILLI, AtLeastOne, Milli, Name, print_milli

_Speeds: TypeAlias = dict[Annotated[int, Field(ge=1, le=LARGEST_COUNT)], Milli]


class Gang(Noun):
    """Replicas that start together or not at all, and the speed by their number."""

    minimum: AtLeastOne = Field(default=1, alias="min")
    """Number of replicas that start together or not at all."""
    maximum: AtLeastOne = Field(default=1, alias="max")
    """Largest number of replicas that the job can use; more than `min` makes it elastic."""
    scaling: _Speeds = Field(default_factory=dict)
    """
    Speed by number of replicas, such as `{1: 1.0, 2: 1.9, 4: 3.4}`; empty means proportional.

    Each further replica adds no more than the one before. Speed is interpolated linearly between two sizes,
    constant beyond the largest, and proportional below the smallest.
    """
    scaling_by_model: dict[Name, _Speeds] = Field(default_factory=dict)
    """
    The same for single GPU models, where it differs from `scaling`. It multiplies the speeds of `gpu_models`.
    If the job names no models, all models are equally fast at full size, and only the shape of a table
    counts.
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
        """True if the planner chooses the number of replicas."""
        return self.minimum < self.maximum

    @property
    def scaled(self) -> bool:
        """True if the replicas of an elastic job may add unequal amounts of speed."""
        return self.elastic and bool(self.scaling or self.scaling_by_model)

    def _table(self, gpu_model: str | None) -> _Speeds:
        """Speeds by size on a GPU model; empty if proportional."""
        return self.scaling_by_model.get(gpu_model or "", self.scaling)

    def speed_milli(self, replicas: int, gpu_model: str | None = None) -> int:
        """Speed of this number of replicas on a GPU model, in thousandths of the unit of the tables."""
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
        (speed, replicas that share it evenly) of the first replicas, then of further ones, up to the maximum.

        No replica adds more than one before it. The replicas up to the `usual` size share its speed evenly.
        """
        table = self._table(gpu_model)
        between = {size for size in table if usual < size < self.maximum}
        sizes = [0, *sorted({*between, usual or self.maximum, self.maximum})]
        speed = {size: self.speed_milli(size, gpu_model) if size else 0 for size in sizes}
        return tuple((speed[larger] - speed[size], larger - size) for size, larger in pairwise(sizes))

    def sizes(self, gpu_model: str | None = None) -> list[int]:
        """The minimum and maximum number of replicas, and the table sizes between them, in order."""
        table = self._table(gpu_model)
        between = (size for size in table if self.minimum < size < self.maximum)
        return sorted({self.minimum, *between, self.maximum})

    def usual_size(self, contention: float, gpu_model: str | None = None, *, room: int | None = None) -> int:
        """
        Size at which jobs that all choose the same size complete soonest on average.

            argmin_k ( 1 + contention · k / fewest ) / speed(k)

        Contention is the number of jobs per place of the smallest size. The first summand is the time of the
        job itself. The second is the delay of the others, which run as many at a time as the size permits.
        (Half of them wait for this job; as many again are still to arrive.) All sizes of the table are tried,
        up to `room` replicas.
        Where speed is a power of the size the optimum is known and behaves the same way: the more jobs, the
        less for each except the shortest (Berg, Vesilo and Harchol-Balter, heSRPT, Performance Evaluation
        144, 2020).
        """
        sizes = self.sizes(gpu_model)
        return min(
            [size for size in sizes if room is None or size <= room] or sizes[:1],
            key=lambda size: (1 + contention * size / self.minimum) / self.speed_milli(size, gpu_model),
        )

    def __hash__(self) -> int:
        """Dicts are not hashable, so hash their items; most gangs have none."""
        if not (self.scaling or self.scaling_by_model):
            return hash((self.minimum, self.maximum))
        by_model = ((model, tuple(table.items())) for model, table in self.scaling_by_model.items())
        return hash((self.minimum, self.maximum, tuple(self.scaling.items()), *by_model))


def _checked(speeds: dict[int, int], where: str = "") -> dict[int, int]:
    """A table of speeds by size, sorted and checked; errors mention `where`."""
    table = dict(sorted(speeds.items()))
    size, speed, before = 0, 0, None
    for larger, faster in table.items():
        # Measured speeds are rounded, so an increase of one thousandth is tolerated.
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
