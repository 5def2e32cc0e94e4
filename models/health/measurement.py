"""
What one GPU was seen to do, and for how long it has been hot or idle; the rules of a policy that judge it.

Source of the XIDs: NVIDIA's catalogue of XID errors, part of the deployment and management documentation of
its data centre GPUs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.cluster import MOST_GPUS
from gpuplan.models.units import Count, Mib, Name, PositiveSeconds, Seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


COOL: Final = 70
"""Temperatures below this, in °C, are not recorded in `hot`: no GPU slows down there."""
BUSY: Final = 10
"""Utilization above this, in percent, is not recorded in `idle`: the GPU does something."""

Percent: TypeAlias = Annotated[int, Field(strict=True, ge=0, le=100)]
"""A part of a whole in percent."""
Xid: TypeAlias = Annotated[int, Field(ge=1, le=9_999)]
"""Code of an error that NVIDIA's driver reports."""
_Celsius: TypeAlias = Annotated[int, Field(ge=COOL, le=200)]
_IdlePercent: TypeAlias = Annotated[int, Field(ge=0, le=BUSY)]


class RowRemap(StrEnum):
    """State of the remapping of faulty rows of GPU memory."""

    PENDING = "pending"
    """Rows are remapped when the GPU is reset."""
    FAILED = "failed"
    """No spare rows are left, or remapping did not work."""


class Measurement(Noun):
    """What one GPU was seen to do, up to the time of the snapshot; a node that is not there has no effect."""

    node: Name
    """Node of the GPU."""
    index: Annotated[int, Field(ge=0, le=MOST_GPUS - 1)]
    """Index of the GPU on its node."""
    utilization: Percent | None = None
    """Part of the time in which it computed, in percent on average; absent means unknown."""
    memory_mib: Mib | None = None
    """Most memory in use, in MiB; absent means unknown."""
    period: Seconds = 0
    """Time for which it was watched; 0 is one look."""
    temperature: Annotated[int, Field(strict=True, ge=0, le=200)] | None = None
    """Highest temperature, in °C; absent means unknown."""
    hot: dict[_Celsius, Seconds] = Field(default_factory=dict)
    """Temperatures in °C, each with the time for which it has been at least that hot; from 70 on."""
    idle: dict[_IdlePercent, Seconds] = Field(default_factory=dict)
    """Utilization in percent, each with the time for which it has been at most that; up to 10."""
    xids: dict[Xid, Seconds] = Field(default_factory=dict)
    """XIDs that it reported, each with the time since then; `period` if that was before it was watched."""
    uncorrectable: Count = 0
    """Uncorrectable ECC errors since its last reset."""
    row_remap: RowRemap | None = None
    """State of row remapping, if rows wait for a reset or could not be remapped."""

    def hot_for(self, celsius: int) -> int | None:
        """Seconds for which it has been at least this hot; None if it is not, or that is unknown."""
        return max((seconds for at, seconds in self.hot.items() if at >= celsius), default=None)

    def idle_for(self, percent: int) -> int | None:
        """Seconds for which its utilization has been at most this; None if it is not, or that is unknown."""
        return max((seconds for at, seconds in self.idle.items() if at <= percent), default=None)


def held_at_least(samples: Sequence[tuple[float, int]], least: int, *, gap: float) -> dict[int, int]:
    """
    For how long, up to the last sample, values have been at least so large.

    `samples` are (time in seconds, value) in order. The result has for each v = min(x_k … x_n) ≥ `least` the
    longest t_n − t_k in whole seconds, over all k between which and n no two samples are further apart than
    `gap` seconds. So values were at least v for at most result[v], and for no time if v is above all keys.
    """
    found: dict[int, int] = {}
    lowest = None
    after = samples[-1][0] if samples else 0.0
    for at, value in reversed(samples):
        if after - at > gap:
            break
        after = at
        lowest = value if lowest is None else min(lowest, value)
        if lowest < least:
            break
        found[lowest] = int(samples[-1][0] - at)
    return found


def held_at_most(samples: Sequence[tuple[float, int]], most: int, *, gap: float) -> dict[int, int]:
    """The same of values that have been at most so large."""
    mirrored = held_at_least([(at, -value) for at, value in samples], -most, gap=gap)
    return {-value: seconds for value, seconds in mirrored.items()}


def joined(before: Measurement, now: Measurement, elapsed: int) -> Measurement:
    """
    The newer measurement with what lasts since an earlier one, `elapsed` seconds before it.

    Between the two the GPU was not seen: what both found is taken to have lasted.
    """

    def lasting(old: Mapping[int, int], new: Mapping[int, int], *, hot: bool) -> dict[int, int]:
        found = dict(new)
        for value, seconds in new.items():
            # Only what held for all of the newer reading goes on from the earlier one.
            if seconds >= now.period:
                for earlier, lasted in old.items():
                    common = min(value, earlier) if hot else max(value, earlier)
                    found[common] = max(found.get(common, 0), elapsed + lasted)
        return dict(sorted(found.items()))

    return now.model_copy(
        update={
            "hot": lasting(before.hot, now.hot, hot=True),
            "idle": lasting(before.idle, now.idle, hot=False),
        }
    )


FATAL_XIDS: Final[Mapping[int, str]] = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "internal micro-controller halt",
    64: "row remapping failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    110: "security fault",
    119: "GSP RPC timeout",
    120: "GSP error",
    140: "unrecovered ECC error",
}
"""
XIDs after which a GPU needs a reset, or its host a restart or repair; others are errors of programs.

The names are those of NVIDIA's catalogue.
"""


class HealthAction(StrEnum):
    """What a rule of health does with what it finds."""

    IGNORE = "ignore"
    """Nothing."""
    WARN = "warn"
    """It is told beside the plan."""
    EXCLUDE = "exclude"
    """No job starts on the GPU, and a job that runs there is damaged; it is told too."""


class HeatRule(Noun):
    """A GPU that stays hot."""

    # Data centre GPUs slow down between 85 and 98 °C, by what their drivers tell.
    celsius: Annotated[int, Field(strict=True, ge=COOL, le=200)] = 85
    """Temperature in °C from which a GPU is hot."""
    lasting: PositiveSeconds = Field(default=600, alias="for")
    """Time for which it has been hot."""
    action: HealthAction = HealthAction.WARN
    """What follows."""


class IdleRule(Noun):
    """A GPU that does nothing although a job holds it."""

    percent: Annotated[int, Field(strict=True, ge=0, le=BUSY)] = 0
    """Utilization in percent up to which a GPU does nothing."""
    lasting: PositiveSeconds = Field(default=1800, alias="for")
    """Time for which it has done nothing, and the job has held it."""
    action: HealthAction = HealthAction.WARN
    """What follows. With `exclude` the job is damaged, so that it starts elsewhere or waits."""


class HealthPolicy(Noun):
    """Rules that judge what was measured of GPUs."""

    heat: HeatRule = Field(default_factory=HeatRule)
    """When a GPU is too hot, and what follows."""
    idle: IdleRule = Field(default_factory=IdleRule)
    """When a GPU with a job does too little, and what follows."""
    uncorrectable: HealthAction = HealthAction.EXCLUDE
    """What follows from uncorrectable ECC errors since the last reset of a GPU."""
    row_remap: HealthAction = HealthAction.EXCLUDE
    """What follows from rows of memory that wait for a reset, or could not be remapped."""
    xids: dict[Xid, HealthAction] = Field(default_factory=dict)
    """
    What follows from XIDs, by code, where that differs from the default: XIDs after which a GPU needs a reset
    or repair (docs/telemetry.md lists them) exclude it, and others are told while they are new.
    """

    def of_xid(self, code: int) -> HealthAction:
        """What follows from an XID."""
        default = HealthAction.EXCLUDE if code in FATAL_XIDS else HealthAction.WARN
        return self.xids.get(code, default)
