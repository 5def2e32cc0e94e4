"""Kinds of action: which of them a cluster can be asked for, and which a policy allows."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, WithJsonSchema


class ActionKind(StrEnum):
    """Kinds of action, by the `type` that plans name them by."""

    # Counts of a plan, and what a cluster can do, are listed in this order.
    RELEASE = "release"
    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MIGRATE = "migrate"
    PREEMPT = "preempt"
    SCALE_UP = "scale_up"
    REPARTITION = "repartition"
    UNCORDON = "uncordon"
    CORDON = "cordon"
    DRAIN = "drain"
    SCALE_DOWN = "scale_down"
    KEEP = "keep"
    WAIT = "wait"


CHANGING_KINDS: Final = tuple(kind for kind in ActionKind if kind not in (ActionKind.KEEP, ActionKind.WAIT))
"""Kinds that change a cluster."""


def _changing(kind: object) -> object:
    if kind not in CHANGING_KINDS:
        raise ValueError(f"expected one of {', '.join(CHANGING_KINDS)}")
    return kind


ChangingKind: TypeAlias = Annotated[
    ActionKind, BeforeValidator(_changing), WithJsonSchema({"type": "string", "enum": [*CHANGING_KINDS]})
]

INFINITIVES: Final = {
    ActionKind.RELEASE: "release jobs",
    ActionKind.START: "start jobs",
    ActionKind.GROW: "grow jobs",
    ActionKind.SHRINK: "shrink jobs",
    ActionKind.MIGRATE: "migrate jobs",
    ActionKind.PREEMPT: "preempt jobs",
    ActionKind.SCALE_UP: "add nodes",
    ActionKind.REPARTITION: "repartition GPUs",
    ActionKind.UNCORDON: "uncordon nodes",
    ActionKind.CORDON: "cordon nodes",
    ActionKind.DRAIN: "drain nodes",
    ActionKind.SCALE_DOWN: "remove nodes",
}
"""What a cluster does or cannot do, in words."""

SWITCHES: Final = (
    ("disruption", "preempt", (ActionKind.PREEMPT,)),
    ("disruption", "resize", (ActionKind.GROW, ActionKind.SHRINK)),
    ("disruption", "migrate", (ActionKind.MIGRATE,)),
    ("mig", "repartition", (ActionKind.REPARTITION,)),
    ("mig", "switch_mode", (ActionKind.REPARTITION,)),
    ("pools", "scale_up", (ActionKind.SCALE_UP,)),
    ("pools", "scale_down", (ActionKind.SCALE_DOWN,)),
)
"""Switches of the policy by section, and the kinds of action that they allow."""
