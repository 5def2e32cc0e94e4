"""Amounts in words for the verifier: GPUs and cores in decimals, memory and disk in MiB, short lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.units import MILLI, print_milli

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuplan.models.cluster import MigInstance

CORES: Final = "CPU cores"
MEMORY: Final = "MiB of memory"
DISK: Final = "MiB of disk"
_LONGEST_LIST: Final = 5


def format_count(number: float, noun: str) -> str:
    """A number with its noun: `1 replica`, `3 replicas`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_gpus(milli: int) -> str:
    """Thousandths of GPUs in words: `1.5 GPUs`."""
    return format_count(print_milli(milli), "GPU")


def format_watts(milli: int) -> str:
    """Thousandths of watts in words: `1400 W`."""
    return f"{print_milli(milli)} W"


def format_amount(amount: int, unit: str) -> str:
    """An amount of a node resource: `4.5 CPU cores`, `2048 MiB of memory`, `8 rdma/hca`."""
    return format_count(print_milli(amount), "CPU core") if unit == CORES else f"{amount} {unit}"


def truncated_names(names: Iterable[str]) -> str:
    """Names in order; a long list is cut off."""
    ordered = sorted(names)
    rest = len(ordered) - _LONGEST_LIST
    return ", ".join(ordered[:_LONGEST_LIST]) + (f" and {rest} more" if rest > 0 else "")


def format_mig_instance(instance: MigInstance | MigSlice) -> str:
    """A MIG instance on its GPU: `1g.10gb at slice 2`."""
    return f"{instance.profile} at slice {instance.start}"


def format_gpu_part(held: GpuShare | MigSlice) -> str:
    """Part of a GPU: `gpu 3`, `0.5 of gpu 3`, `1g.10gb at slice 2 of gpu 3`."""
    if not isinstance(held, GpuShare):
        return f"{format_mig_instance(held)} of gpu {held.index}"
    return f"gpu {held.index}" if held.milli == MILLI else f"{print_milli(held.milli)} of gpu {held.index}"


def amounts_by_unit(replica: Replica) -> dict[str, int]:
    """Holdings of a replica besides GPUs, by unit; resource names have no spaces, so units cannot collide."""
    return {
        CORES: replica.cpu_milli,
        MEMORY: replica.memory_mib,
        DISK: replica.disk_mib,
        **replica.resources,
    }


def format_replica(replica: Replica) -> str:
    """All holdings of a replica: `node n0, gpu 0, 4 CPU cores`."""
    gpus = sorted(replica.gpus, key=lambda held: (held.index, format_gpu_part(held)))
    held = sorted((unit, amount) for unit, amount in amounts_by_unit(replica).items() if amount)
    return ", ".join(
        [
            f"node {replica.node}",
            *map(format_gpu_part, gpus),
            *(format_amount(amount, unit) for unit, amount in held),
        ]
    )
