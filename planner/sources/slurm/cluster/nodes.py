"""Nodes of a Slurm cluster: GPUs by GRES, features and partitions as labels, states, racks by topology."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from gpuplan.models.cluster import Node, NodeGpus
from gpuplan.models.units import LARGEST_COUNT
from gpuplan.planner.sources.slurm.values import (
    flags,
    gpus_of,
    hosts,
    name_of,
    number,
    one_line,
    other_gres,
    words,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpuplan.planner.sources.slurm.values import Record

NODE_FIELDS: Final = (
    *("active_features", "cpus", "effective_cpus", "gres", "name", "partitions", "real_memory"),
    *("reason", "specialized_memory", "state", "state_flags", "temporary_disk"),
)
"""Fields of a node record that are read."""

NODE_LABEL: Final = "slurm/node"
FEATURE_LABEL: Final = "slurm/feature."
PARTITION_LABEL: Final = "slurm/partition."
FEATURES_LABEL: Final = "slurm/features"
"""All features of a node in one label, for conditions that are no list of features."""
PARTITIONS_LABEL: Final = "slurm/partitions"
"""All partitions of a node in one label, for jobs that may use any of several."""
ANY_MODEL: Final = "gpu"
"""GPU model of GRES without a type."""

_DOWN: Final = frozenset(
    {
        *("DOWN", "ERROR", "FAIL", "FUTURE", "UNKNOWN", "NOT_RESPONDING", "INVALID", "INVALID_REG"),
        *("POWERED_DOWN", "POWER_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_UP", "REBOOT_ISSUED"),
    }
)
"""States in which no job can run on a node now."""

_RESERVED: Final = frozenset({"MAINT", "MAINTENANCE", "RESERVED"})
_CLOSED: Final = frozenset({"DRAIN", "DRAINING", "DRAINED", "BLOCKED"})
"""States in which no job of the queue may start on a node, while running jobs continue."""

# As long as a label may be (`Label` of models/units.py); a hash of a longer one still tells sets apart.
_LONGEST_LABEL: Final = 253
_MIG: Final = re.compile(r"\d+g\.\d+gb")


def all_of(names: Iterable[str]) -> str:
    """Value of a label for a set of names."""
    text = ",".join(sorted(names))
    return text if len(text) <= _LONGEST_LABEL else sha256(text.encode()).hexdigest()


def node_of(
    record: Record, racks: Mapping[str, str], reserved: Collection[str], note: Callable[[str, str], None]
) -> Node:
    """
    A node record; `note` is called with the node's name and what of it is not understood.

    A node that is not understood is cordoned, so that nothing starts there; so is one that Slurm calls
    reserved and that is in no known reservation, as the `reserved` ones are.
    """
    name = str(record["name"])
    state = flags(record.get("state")) | flags(record.get("state_flags"))
    gpus, strange = _gpus(record)
    if strange:
        note(f"node {name}", strange)
    others = other_gres(record.get("gres"))
    for each in sorted(each for each, count in others.items() if count > LARGEST_COUNT):
        note(f"node {name}", f"it has more of {each} than {LARGEST_COUNT:,}, which is not counted")
        del others[each]
    labels = {NODE_LABEL: name}
    features, partitions = words(record.get("active_features")), words(record.get("partitions"))
    labels |= {f"{FEATURE_LABEL}{name_of(each)}": "true" for each in features}
    labels |= {f"{PARTITION_LABEL}{name_of(each)}": "true" for each in partitions}
    labels |= {FEATURES_LABEL: all_of(features), PARTITIONS_LABEL: all_of(partitions)}
    cpus = number(record.get("effective_cpus")) or number(record.get("cpus")) or 0
    specialized = number(record.get("specialized_memory")) or 0
    ready = not state & _DOWN
    cordoned = bool(strange or state & _CLOSED or (state & _RESERVED and name not in reserved))
    return Node.model_validate(
        {
            "name": name_of(name),
            "gpus": gpus,
            "cpus": cpus,
            "memory_mib": max(0, (number(record.get("real_memory")) or 0) - specialized),
            "disk_mib": number(record.get("temporary_disk")) or 0,
            "resources": others,
            "rack": racks.get(name, ""),
            "labels": labels,
            "ready": ready,
            "cordoned": cordoned,
            "state_reason": strange or ("" if ready and not cordoned else one_line(record.get("reason"))),
        }
    )


def _gpus(record: Record) -> tuple[NodeGpus | None, str]:
    """The GPUs of a node, and what of them is not understood."""
    found = [each for each in gpus_of(record.get("gres")) if each.count]
    if any(_MIG.search(each.type) for each in found):
        return None, "its GPUs are MIG instances by type: Slurm does not tell their places"
    if not found:
        return None, ""
    kinds = sorted({each.type for each in found})
    largest = max(found, key=lambda each: (each.count, each.type))
    gpus = NodeGpus(
        model=name_of(largest.type) if largest.type else ANY_MODEL,
        count=sum(each.count for each in found),
        # A job may ask for a number of GPUs of a node, but not for certain ones.
        pinned=False,
    )
    return gpus, f"its GPUs are of {len(kinds)} types: {', '.join(kinds)}" if len(kinds) > 1 else ""


def racks_of(topology: str) -> dict[str, str]:
    """Leaf switch or block of each node, from `scontrol --oneliner show topology`."""
    racks: dict[str, str] = {}
    for line in topology.splitlines():
        fields: dict[str, str] = dict(re.findall(r"(\w+)=(\S+)", line))
        name = fields.get("SwitchName") or fields.get("BlockName")
        if name is not None and fields.get("Level", "0") == "0" and not fields.get("Switches"):
            racks |= dict.fromkeys(hosts(fields.get("Nodes")), name)
    return racks
