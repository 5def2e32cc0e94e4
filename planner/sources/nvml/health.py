"""
Rules of health: which GPUs take no more jobs, and which are to be looked at.

They need no history, and hold under every policy. Source: "GPU Memory Error Management" (row remapping), part
of the deployment and management documentation of NVIDIA's data centre GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuplan.models.health.rules import FATAL_XIDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True, slots=True)
class HealthRules:
    """What makes a GPU unhealthy."""

    fatal_xids: Mapping[int, str] = field(default_factory=lambda: FATAL_XIDS)
    """XIDs that exclude a GPU, with their names (NVIDIA's catalogue of XID errors)."""
    most_uncorrectable: int = 0
    """Uncorrectable ECC errors since the last reset that a GPU may have: each spoils a program's memory."""
    degrees_below_slowdown: int = 0
    """
    A GPU is too hot at its own slowdown threshold less this, in °C: there the hardware lowers its clocks.
    """
    most_idle_utilization: int = 0
    """Utilization in percent up to which a GPU does nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What one look at a GPU shows; None is unknown."""

    temperature: int | None
    """In °C."""
    slowed_by_heat: bool
    """The hardware says that it lowers the clocks because of its temperature."""
    utilization: int | None
    """Percent of the time in which a kernel ran; unknown in MIG mode."""
    memory_mib: int | None
    """Memory in use."""
    processes: frozenset[int]
    """Pids of the processes that compute on it."""
    at: float = 0.0
    """Time of the look, in seconds of a monotonic clock."""


@dataclass(slots=True)
class Vitals:
    """What is known of the health of one GPU."""

    gone: str = ""
    """Why it does not answer; empty if it does."""
    uncorrectable: int = 0
    rows_pending: bool = False
    rows_failed: bool = False
    slowdown: int | None = None
    """Slowdown threshold in °C; None if the GPU does not tell it."""
    xids: set[int] = field(default_factory=set)
    samples: list[Sample] = field(default_factory=list)
    """In the order of time; several if the GPU was watched."""


def faults(vitals: Vitals, rules: HealthRules, *, watched: bool) -> Iterator[str]:
    """
    What makes a GPU unhealthy, in words that stay the same from one reading to the next.

    Heat counts if it lasts as long as the GPU was watched.
    """
    if vitals.gone:
        yield f"it does not answer ({vitals.gone})"
    for xid in sorted(vitals.xids & rules.fatal_xids.keys()):
        yield f"XID {xid} ({rules.fatal_xids[xid]})"
    if vitals.uncorrectable > rules.most_uncorrectable:
        yield "uncorrectable ECC errors since its last reset"
    if vitals.rows_failed:
        yield "row remapping failed"
    if vitals.rows_pending:
        yield "row remapping waits for a reset"
    if watched and _hot_samples(vitals, rules) == len(vitals.samples) > 0:
        yield "it is too hot"


def warnings(vitals: Vitals, rules: HealthRules, *, watched_seconds: float) -> Iterator[str]:
    """What is to be looked at, and excludes no job."""
    hot = _hot_samples(vitals, rules)
    if hot and (not watched_seconds or hot < len(vitals.samples)):
        hottest = max((each.temperature or 0 for each in vitals.samples), default=0)
        limit = "" if vitals.slowdown is None else f"; it slows down at {vitals.slowdown} °C"
        yield f"it is hot: {hottest} °C{limit}"
    for xid in sorted(vitals.xids - rules.fatal_xids.keys()):
        yield f"XID {xid}, which is an error of a program"
    stayed = frozenset.intersection(*(each.processes for each in vitals.samples)) if vitals.samples else ()
    if watched_seconds and stayed and all(_is_idle(each, rules) for each in vitals.samples):
        pids = ", ".join(map(str, sorted(stayed)))
        yield f"it did nothing for {watched_seconds:g} s, and belongs to a process ({pids})"


def _hot_samples(vitals: Vitals, rules: HealthRules) -> int:
    limit = None if vitals.slowdown is None else vitals.slowdown - rules.degrees_below_slowdown
    return sum(
        each.slowed_by_heat
        or (limit is not None and each.temperature is not None and each.temperature >= limit)
        for each in vitals.samples
    )


def _is_idle(sample: Sample, rules: HealthRules) -> bool:
    return sample.utilization is not None and sample.utilization <= rules.most_idle_utilization
