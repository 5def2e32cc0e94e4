"""Racks of whole nodes, and gangs that need one or had rather have few of them."""

from __future__ import annotations

from gpuplan.models.affinity import LocalityPreference
from tests.support.builders import build


def racks(*sizes):
    """Racks r0, r1, … with so many nodes each."""
    return [
        build.node(f"r{rack}n{number}", rack=f"r{rack}", zone="z", region="e")
        for rack, size in enumerate(sizes)
        for number in range(size)
    ]


def gang(name, replicas, *, required=None, preferred=None, **more):
    """A gang of whole nodes."""
    locality = LocalityPreference(required=required, preferred=preferred)
    return build.job(name, gpus=8, replicas=replicas, locality=locality, **more)
