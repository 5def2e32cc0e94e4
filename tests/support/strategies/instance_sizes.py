"""How large random instances are, and the few names that their parts share."""

from __future__ import annotations

from dataclasses import dataclass

from gpuplan.models.cluster import Taint

CORES_PER_GPU = 8
MODELS = ("H100-80GB", "A100-80GB")
HCA = "rdma/hca"
TAINT = Taint(key="dedicated", value="research")
WATTS = 700
CLASSES = ("training", "inference")
APPS = ({"app": "x"}, {"app": "y"})


@dataclass(frozen=True)
class Kit:
    """How large everything is."""

    gpus: tuple[int, ...]
    """Whole GPUs of a replica."""
    shares: tuple[int, ...]
    fair: bool
    """CPU and memory are in proportion to GPUs, and so never what is missing."""
    nodes: tuple[int, ...] = (2, 4, 4, 8)
    """GPUs of a node."""
    most_nodes: int = 3
    gangs: tuple[int | tuple[int, int], ...] = (1, 1, 1, 2, 3, (1, 3), (2, 4))
    models: tuple[str, ...] = MODELS
    layouts: tuple[tuple[tuple[str, int], ...], ...] = (
        (),
        (("3g.40gb", 0), ("3g.40gb", 4)),
        (("1g.10gb", 0), ("2g.20gb", 2), ("3g.40gb", 4)),
        (("1g.10gb", 0), ("1g.10gb", 1), ("1g.10gb", 2)),
        (("4g.40gb", 0),),
    )
    mig: tuple[tuple[tuple[str, int], ...], ...] = (
        (("1g.10gb", 1),),
        (("1g.10gb", 1),),
        (("2g.20gb", 1),),
        (("3g.40gb", 1),),
        (("4g.40gb", 1),),
        (("1g.10gb", 2),),
        (("1g.10gb+me", 1),),
    )
    """MIG instances of a replica."""


TINY = Kit(
    gpus=(1, 1, 2),
    shares=(500,),
    fair=True,
    nodes=(1, 2, 2),
    most_nodes=3,
    gangs=(1, 1, 1, 2, (1, 2)),
    models=("A30-24GB", "A30-24GB", "T4"),
    layouts=((), (("2g.12gb", 0), ("2g.12gb", 2)), (("1g.6gb", 0), ("2g.12gb", 2))),
    mig=((("1g.6gb", 1),), (("2g.12gb", 1),), (("4g.24gb", 1),)),
)
"""Small enough to try everything."""
