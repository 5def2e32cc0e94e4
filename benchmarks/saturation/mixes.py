"""
Mixes: variants of the openb trace with other shares of pods, to judge rules where they were not tuned.

Each mix changes one property of the trace's pods and keeps the others: the part of GPU pods that name models,
that take a share of one GPU, that take several GPUs, and the CPU that GPU pods ask for. Which pods change is
drawn by a seed. Half of the mixes are for tuning (`TUNE`), the other half is for judging (`JUDGE`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.saturation.trace import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.saturation.trace import Shape, Trace


@dataclass(frozen=True, slots=True)
class Mix:
    """Targets for the GPU pods of a trace; None keeps what the trace has."""

    naming: float = 0.0
    """Fraction of GPU pods that name GPU models."""
    shares: float | None = None
    """Fraction of GPU pods that take a share of one GPU."""
    several: float | None = None
    """Fraction of GPU pods that take two or more GPUs."""
    cpu: float = 1.0
    """Factor on the CPU that GPU pods ask for."""


NAMING_VARIANT: Final = "gpuspec10"
"""The variant that mixes are made of: some of its pods name models."""

TUNE: Final[dict[str, Mix]] = {
    "naming 15 %": Mix(naming=0.15),
    "naming 30 %": Mix(naming=0.30),
    "shares 50 %": Mix(shares=0.50),
    "shares 70 %": Mix(shares=0.70),
    "several 10 %": Mix(several=0.10),
    "CPU × 1.75": Mix(cpu=1.75),
}
JUDGE: Final[dict[str, Mix]] = {
    "naming 20 %": Mix(naming=0.20),
    "naming 25 %": Mix(naming=0.25),
    "naming 33 %": Mix(naming=0.33),
    "shares 60 %": Mix(shares=0.60),
    "shares 80 %": Mix(shares=0.80),
    "several 20 %": Mix(several=0.20),
    "CPU × 2.5": Mix(cpu=2.5),
    "naming 25 %, shares 60 %": Mix(naming=0.25, shares=0.60),
}


def mixed(trace: Trace, name: str, mix: Mix, seed: int) -> Trace:
    """
    A trace of as many pods, with the fractions of the mix.

    Where there are too many pods of a kind, some are replaced by draws from the kind that is missing.
    Pods that are to name models take the list of a random pod that has one: the trace must have some
    (`gpuspec10`).
    """
    draws = np.random.default_rng(seed)
    pods = [trace.shapes[pod] for pod in trace.pods.tolist()]
    if mix.shares is not None:
        pods = _drawn(pods, mix.shares, lambda shape: shape.is_share, draws)
    if mix.several is not None:
        pods = _drawn(pods, mix.several, lambda shape: shape.gpus > 1, draws)
    pods = _naming(pods, mix.naming, draws)
    if mix.cpu != 1.0:
        most = max(machine.cpu_milli for machine in trace.machines)
        pods = [
            replace(shape, cpu_milli=min(most, int(shape.cpu_milli * mix.cpu))) if shape.gpus else shape
            for shape in pods
        ]
    return trace_of(name, trace.machines, pods)


def _drawn(
    pods: list[Shape], part: float, wanted: Callable[[Shape], bool], draws: np.random.Generator
) -> list[Shape]:
    """Pods of which a fraction of those with GPUs is of the wanted kind."""
    gpu = [index for index, shape in enumerate(pods) if shape.gpus]
    have = [index for index in gpu if wanted(pods[index])]
    others = [index for index in gpu if not wanted(pods[index])]
    missing = round(part * len(gpu)) - len(have)
    kind, change = (have, others) if missing > 0 else (others, have)
    found = list(pods)
    changed = draws.choice(change, size=abs(missing), replace=False).tolist()
    for index, source in zip(changed, draws.choice(kind, size=abs(missing)).tolist(), strict=True):
        found[index] = pods[source]
    return found


def _naming(pods: list[Shape], part: float, draws: np.random.Generator) -> list[Shape]:
    """Pods of which a fraction of those with GPUs names models, with the lists that occur."""
    gpu = [index for index, shape in enumerate(pods) if shape.gpus]
    lists = [pods[index].models for index in gpu if pods[index].models]
    chosen = set(draws.choice(gpu, size=round(part * len(gpu)), replace=False).tolist())
    found = [replace(shape, models=()) if shape.gpus else shape for shape in pods]
    for index in sorted(chosen):
        models = pods[index].models or lists[int(draws.integers(len(lists)))]
        found[index] = replace(found[index], models=models)
    return found
