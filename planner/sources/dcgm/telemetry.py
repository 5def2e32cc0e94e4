"""
What DCGM exporter measured of each GPU, asked of a Prometheus.

Names and labels of the metrics are those of DCGM exporter's default counters; all but the temperature may be
missing. Series of one GPU that differ in other labels, such as the pod, or the MIG instance, count together.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.health.measurement import BUSY, COOL, RowRemap, held_at_least, held_at_most
from gpuplan.models.units import print_seconds, print_timestamp
from gpuplan.planner.sources.dcgm.merge import GpuTelemetry, Telemetry
from gpuplan.planner.sources.dcgm.prometheus import Prometheus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from gpuplan.planner.sources.dcgm.prometheus import Labels

_STEPS: Final = 60
"""Most instants of a window at which heat and idleness are asked for."""
# DCGM exporter reads its counters every 30 s by default.
_SHORTEST_STEP: Final = 30
_AROUND: Final = 120
"""
Seconds before each instant of which all samples count, so that a short dip or burst between two instants is
seen. Scrapes further apart than this, as after a failure, end what lasts.
"""

_WHERE: Final = "Hostname, node, instance, gpu, UUID, modelName"
"""Labels that tell where a GPU is."""
_GPU: Final = "UUID"
"""Label that identifies a GPU whatever pod, exporter or scrape job its series are from."""
_TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
_XID: Final = "DCGM_FI_DEV_XID_ERRORS"
_XID_COUNT: Final = "DCGM_EXP_XID_ERRORS_COUNT"
_UTILIZATION: Final = (
    ('DCGM_FI_DEV_GPU_UTIL{GPU_I_ID=""}', 1),
    ('DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID=""}', 100),
)
"""Metrics of utilization with what makes them percent, the preferred first; GPUs in MIG mode have none."""

_HOTTEST: Final = 200
"""DCGM writes values near 2^31 or 2^63 for what a GPU does not tell: no value is larger than these."""
# The same of memory (16 TiB) and of numbers of errors.
_LARGEST_MIB: Final = 2**24
_MOST_ERRORS: Final = 1_000_000


def read_telemetry(url: str, at: datetime, *, over: int) -> Telemetry:
    """
    Ask a Prometheus what GPUs did in the `over` seconds up to an instant.

    Raises
    ------
    PlannerError
        The server does not answer or refuses, or has no samples of GPUs in this time.
    """
    with Prometheus(url) as server:
        reading = _Reading(server, at, over)
        gpus = reading.gpus()
        if not gpus:
            raise PlannerError(
                f"{server.url} has no {_TEMPERATURE} of a GPU in the {print_seconds(over)} up to "
                f"{print_timestamp(at)}.\nDoes it scrape DCGM exporter, and is the snapshot of this time?"
            )
        notes = (*server.warnings, *sorted(reading.strange))
        return Telemetry(server.url, at, tuple(sorted(gpus, key=lambda each: (each.host, each.index))), notes)


class _Reading:
    """The queries of one reading."""

    def __init__(self, server: Prometheus, at: datetime, over: int) -> None:
        self._server, self._at, self._over = server, at, over
        self._step = max(_SHORTEST_STEP, math.ceil(over / _STEPS))
        self._around = max(_AROUND, 2 * self._step)
        self._gpus: dict[str, GpuTelemetry] = {}
        self.strange: set[str] = set()

    def gpus(self) -> list[GpuTelemetry]:
        """All GPUs with a temperature in the window, with all that is known of them."""
        over, all_ = f"[{self._over}s]", f"[{self._over}s:{self._step}s]"
        self._find(f"max by ({_WHERE}) (max_over_time({_TEMPERATURE}{over}))")
        if not self._gpus:
            return []
        self._read_periods(all_)
        for gpu, value in self._known(_first_of(lambda metric: _average(metric, over))):
            gpu.utilization = _within(value, 100)
        for gpu, value in self._known(f"max_over_time({_memory('DCGM_FI_DEV_FB_USED')}{all_})"):
            gpu.used_mib = _within(value, _LARGEST_MIB)
        free = f"({_memory('DCGM_FI_DEV_FB_USED')} + {_memory('DCGM_FI_DEV_FB_FREE')})"
        for gpu, value in self._known(free):
            gpu.memory_mib = _within(value, _LARGEST_MIB) or 0
        self._read_lasting()
        self._read_errors()
        return list(self._gpus.values())

    def _read_periods(self, window: str) -> None:
        """For how long there are samples of each GPU; those of the beginning are cheap to ask for."""
        for gpu, _ in self._known(f"max by ({_GPU}) ({_TEMPERATURE} offset {self._over}s)"):
            gpu.period = self._over
        if all(gpu.period for gpu in self._gpus.values()):
            return
        oldest = f"min by ({_GPU}) (min_over_time(timestamp({_TEMPERATURE}){window}))"
        for gpu, value in self._known(oldest):
            gpu.period = max(0, min(self._over, round(self._at.timestamp() - value)))

    def _read_lasting(self) -> None:
        """For how long GPUs have been hot, and idle; only those that are so are transferred."""
        around = f"[{self._around}s]"
        heat = f"min by ({_GPU}) (min_over_time({_TEMPERATURE}{around})) >= {COOL}"
        for gpu, series in self._over_time(heat):
            samples = [(at, value) for at, each in series if (value := _within(math.floor(each), _HOTTEST))]
            gpu.hot = held_at_least(self._up_to_now(samples), COOL, gap=1.5 * self._step)
        idle = _first_of(lambda metric: f"max by ({_GPU}) (max_over_time({metric}{around}))")
        for gpu, series in self._over_time(f"({idle}) <= {BUSY}"):
            found = [(at, math.ceil(each)) for at, each in series if each >= 0]
            gpu.idle = held_at_most(self._up_to_now(found), BUSY, gap=1.5 * self._step)

    def _read_errors(self) -> None:
        xids = f"max by ({_GPU}, err_code) ({_XID}) > 0 or max by ({_GPU}, xid) ({_XID_COUNT}) > 0"
        for series in self._server.over(xids, self._at, seconds=self._over, step=self._step):
            gpu = self._gpus.get(series.labels.get(_GPU, ""))
            for at, value in series.samples if gpu else ():
                code = int(series.labels["xid"]) if series.labels.get("xid", "").isdecimal() else int(value)
                since = round(self._at.timestamp() - at)
                if gpu and 1 <= code <= 9_999:
                    gpu.xids[code] = max(gpu.xids.get(code, 0), since)
        for gpu in self._gpus.values():
            # One that is there at the first instant is of unknown age.
            first = gpu.period - self._step
            gpu.xids = {
                code: gpu.period if since >= first else since for code, since in sorted(gpu.xids.items())
            }
        for gpu, value in self._known(f"max by ({_GPU}) (DCGM_FI_DEV_ECC_DBE_VOL_TOTAL) > 0"):
            gpu.uncorrectable = _within(value, _MOST_ERRORS) or 0
        for state, metric in (
            (RowRemap.PENDING, "DCGM_FI_DEV_ROW_REMAP_PENDING"),
            (RowRemap.FAILED, "DCGM_FI_DEV_ROW_REMAP_FAILURE"),
        ):
            for gpu, value in self._known(f"max by ({_GPU}) ({metric}) > 0"):
                if _within(value, _MOST_ERRORS):
                    gpu.row_remap = state

    def _up_to_now(self, samples: list[tuple[float, int]]) -> list[tuple[float, int]]:
        """The samples, if the last one is of now: what ended before does not last."""
        return samples if samples and samples[-1][0] > self._at.timestamp() - self._step else []

    def _find(self, query: str) -> None:
        """Note the GPUs of an answer with their highest temperature."""
        for series in self._server.instant(query, self._at):
            gpu = _identified(series.labels)
            if gpu is None:
                self.strange.add(f"series without Hostname, gpu or UUID: {_shown(series.labels)}")
                continue
            gpu = self._gpus.setdefault(gpu.uuid, gpu)
            for _, value in series.samples:
                highest = max(gpu.temperature or 0, _within(value, _HOTTEST) or 0)
                gpu.temperature = highest or gpu.temperature

    def _known(self, query: str) -> Iterator[tuple[GpuTelemetry, float]]:
        """The GPUs that are known already, each with its value."""
        for series in self._server.instant(query, self._at):
            if (gpu := self._gpus.get(series.labels.get(_GPU, ""))) is not None:
                yield from ((gpu, value) for _, value in series.samples)

    def _over_time(self, query: str) -> Iterator[tuple[GpuTelemetry, list[tuple[float, float]]]]:
        for series in self._server.over(query, self._at, seconds=self._over, step=self._step):
            if (gpu := self._gpus.get(series.labels.get(_GPU, ""))) is not None:
                yield gpu, list(series.samples)


def _first_of(query: Callable[[str], str]) -> str:
    """The query of the first metric of utilization that a GPU has, in percent."""
    return " or ".join(f"{factor} * {query(metric)}" for metric, factor in _UTILIZATION)


def _average(metric: str, over: str) -> str:
    """The average of all samples, whatever pods the GPU had."""
    total, count = (f"sum by ({_GPU}) ({each}_over_time({metric}{over}))" for each in ("sum", "count"))
    return f"({total} / {count})"


def _memory(metric: str) -> str:
    """A sum over the MIG instances of a GPU, each counted once."""
    return f"(sum by ({_GPU}) (max by ({_GPU}, GPU_I_ID) ({metric})))"


def _within(value: float, most: int) -> int | None:
    """The value rounded; None if it is no such value."""
    return round(value) if 0 <= value <= most else None


def _identified(labels: Labels) -> GpuTelemetry | None:
    """The GPU of a series; None if its labels do not say which."""
    index = labels.get("gpu", "")
    # Without the exporter's own label, that which service discovery adds.
    host = labels.get("Hostname") or labels.get("node") or re.sub(r":\d+$", "", labels.get("instance", ""))
    if not host or not labels.get(_GPU) or not re.fullmatch(r"\d{1,3}", index):
        return None
    model = "-".join(labels.get("modelName", "").split())
    return GpuTelemetry(host=host, index=int(index), uuid=labels[_GPU], model=model)


def _shown(labels: Labels) -> str:
    return ", ".join(f"{key}={value}" for key, value in sorted(labels.items()) if value) or "no labels"
