"""What a host tells of its GPUs, compared with what the snapshot of a cluster states of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import InputProblem
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.planner.sources.nvml.gpus import UNKNOWN_MODEL
from gpuplan.planner.text_format import format_count, format_mig_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.cluster import Gpu, NodeGpus
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Replica

_SAME_MEMORY: Final = 0.08
"""
Largest relative difference of two figures for one GPU's memory.

Names have round GB, and error correction takes up to a sixteenth of it: a 16 GB T4 tells 15,360 MiB.
"""

_ALIASES: Final = {"hbm3": {"sxm5"}, "gh200": {"h100"}}
"""Words that a product's name stands for: NVIDIA calls the H100 SXM5 `H100 80GB HBM3`."""


@dataclass(slots=True)
class Told:
    """What one file of a host tells: contradictions, and notes."""

    place: str
    problems: list[InputProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def wrong(self, subject: str, message: str) -> None:
        """Add a contradiction."""
        self.problems.append(InputProblem(self.place, f"{subject} {message}"))

    def note(self, subject: str, what: str) -> None:
        """Add a note."""
        self.notes.append(f"{subject}: {what}")


def check_gpus(subject: str, stated: NodeGpus, found: NodeGpus, told: Told) -> None:
    """Number, model, memory and identity of the GPUs are the same."""
    if stated.count != found.count:
        told.wrong(
            subject,
            f"has {format_count(stated.count, 'GPU')} in the snapshot, and {found.count} by NVML; "
            "expected the same number.",
        )
    if not same_model(stated.model, found):
        told.wrong(
            subject,
            f"has GPUs of model '{stated.model}' in the snapshot, and '{found.model}' by NVML; "
            "expected one model.",
        )
    if stated.memory_mib and found.memory_mib and not _same_memory(stated.memory_mib, found.memory_mib):
        told.wrong(
            subject,
            f"has GPUs of {stated.memory_mib:,} MiB in the snapshot, and of {found.memory_mib:,} by NVML; "
            "expected the same memory.",
        )
    others = found.by_index
    for gpu in stated.details:
        other = others.get(gpu.index)
        if other and gpu.uuid and other.uuid and gpu.uuid != other.uuid:
            told.wrong(
                subject,
                f"has {gpu.uuid} as GPU {gpu.index} in the snapshot, and {other.uuid} by NVML; "
                "expected one GPU.\n  If it was replaced, read the cluster anew.",
            )


def check_layouts(
    subject: str, stated: NodeGpus, found: NodeGpus, held: list[tuple[Job, Replica]], told: Told
) -> None:
    """Jobs hold what the layouts of the GPUs have, and the snapshot's model has these profiles."""
    for index, gpu in found.by_index.items():
        if gpu.mig is not None and mig_geometry(stated.model) is None:
            told.wrong(
                subject,
                f"has GPU {index} in MIG mode, and model '{stated.model}' of the snapshot is not known to "
                f"have MIG; expected '{found.model}'.",
            )
            continue
        for job, replica in held:
            for each in replica.gpus:
                if each.index == index and not _exists(each, gpu):
                    what = (
                        f"{each.profile} at slice {each.start}" if isinstance(each, MigSlice) else "a share"
                    )
                    has = "no MIG mode" if gpu.mig is None else format_mig_layout(gpu.mig)
                    told.wrong(
                        subject,
                        f"has job '{job.name}' on {what} of GPU {index} in the snapshot, and there is {has} "
                        "by NVML; expected the layout that the job holds.",
                    )


def _exists(held: GpuShare | MigSlice, gpu: Gpu) -> bool:
    if isinstance(held, GpuShare):
        return gpu.mig is None
    return gpu.mig is not None and held.instance in gpu.mig


def same_model(stated: str, found: NodeGpus) -> bool:
    """
    True if a name in a snapshot can mean the model that NVML tells.

    Each of its words is in NVML's name, or is the memory in GB: `h100`, `H100-80GB` and `nvidia_h100` are
    names of `NVIDIA-H100-80GB-HBM3`.
    """
    if UNKNOWN_MODEL in (stated, found.model):
        return True
    known = set(_words(found.model))
    for word, others in _ALIASES.items():
        known |= others if word in known else set()
    gib = found.memory_mib / 1024
    return all(
        word in known or (word[:-2].isdigit() and word.endswith("gb") and _same_memory(int(word[:-2]), gib))
        for word in _words(stated)
    )


def _words(model: str) -> Iterator[str]:
    return iter(re.findall(r"[a-z0-9]+", model.lower()))


def _same_memory(one: float, other: float) -> bool:
    return abs(one - other) <= _SAME_MEMORY * max(one, other)
