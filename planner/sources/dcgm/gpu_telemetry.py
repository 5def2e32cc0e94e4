"""What was measured of each GPU of a cluster, before it is known which node of a snapshot has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.health.measurement import RowRemap


@dataclass(slots=True)
class GpuTelemetry:
    """What was measured of one GPU; None and empty are unknown."""

    host: str
    """Host of the GPU as DCGM exporter names it."""
    index: int
    """Index of the GPU on its host."""
    uuid: str
    model: str = ""
    """Model as GPU feature discovery writes it: without spaces."""
    memory_mib: int = 0
    """Memory of the GPU as far as programs may use it, in MiB."""
    period: int = 0
    """Seconds of the window in which there are samples of it."""
    temperature: int | None = None
    utilization: int | None = None
    used_mib: int | None = None
    hot: dict[int, int] = field(default_factory=dict)
    idle: dict[int, int] = field(default_factory=dict)
    xids: dict[int, int] = field(default_factory=dict)
    uncorrectable: int = 0
    row_remap: RowRemap | None = None


@dataclass(frozen=True, slots=True)
class Telemetry:
    """What a Prometheus knows of GPUs at an instant."""

    url: str
    at: datetime
    gpus: tuple[GpuTelemetry, ...]
    """By host and index."""
    notes: tuple[str, ...]
    """Warnings of the server, and series that name no GPU."""
