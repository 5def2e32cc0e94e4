"""
Rules of health, as part of the policy: what is told of a GPU, and what excludes it.

Source of the XIDs: NVIDIA's catalogue of XID errors, part of the deployment and management documentation of
its data centre GPUs.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.health.measurement import BUSY, COOL, Xid
from gpuplan.models.units import PositiveSeconds

if TYPE_CHECKING:
    from collections.abc import Mapping

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
