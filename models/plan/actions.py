"""
Actions of a plan: one class and one line of `ACTIONS` for each kind, which everything that names, sorts or
colours actions reads.

The effect of each kind on a cluster is in `gpuplan.planner.analysis.effects`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from operator import not_
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeAlias

from pydantic import Field

from gpuplan.models.cluster import MigInstance, Node
from gpuplan.models.placement import Placement
from gpuplan.models.plan import action_kinds
from gpuplan.models.plan.precondition import (
    GpuLayout,
    JobDamaged,
    JobRuns,
    JobWaits,
    NodeAbsent,
    NodeEmpty,
    NodeExists,
    Precondition,
)
from gpuplan.models.plan.reason import PlanBase, Reason
from gpuplan.models.units import Name, Seconds, Timestamp

if TYPE_CHECKING:
    from collections.abc import Iterable


ActionKind = action_kinds.ActionKind


class Impact(StrEnum):
    """Meaning of an action for what runs; views choose a colour by it."""

    GAIN = "gain"
    CHANGE = "change"
    LOSS = "loss"


Needed: TypeAlias = JobWaits | JobRuns | JobDamaged | GpuLayout | NodeEmpty | NodeExists | NodeAbsent


@dataclass(frozen=True, slots=True)
class ActionInfo:
    """Names, sign and check of one kind of action."""

    sign: str
    """One character at the beginning of its line."""
    impact: Impact
    verb: str
    """Verb for what is to be done, as in `3 to start` and `1 node to add`."""
    passive: str
    """What the cluster refuses, as in `node n0 cannot be added`."""
    nouns: tuple[str, str]
    """Noun for one such action, and for several."""
    endings: tuple[str, str] = ("", "")
    """Words behind the noun while the action is to be done, and once it is done."""
    needs: type[Needed] = JobRuns
    """The precondition that each such action must have."""
    phrase: str = ""
    """Description of an action about a node, with fields of the action in braces."""
    takes: bool = False
    """True if it takes places or nodes, which count as taken while it may still land; others free some."""
    undoes: str = ""
    """What it is for in a rollback of `{plan}`; empty if a rollback has its own reason for it."""
    timeout: int = 15 * 60
    """Seconds that it may last; a policy's `apply.timeouts` may give others."""


_MINUTE: Final = 60


def _node(
    sign: str,
    impact: Impact,
    verb: str,
    needs: type[Needed],
    phrase: str,
    *,
    takes: bool = False,
    undoes: str = "",
    timeout: int = _MINUTE,
) -> ActionInfo:
    done, nouns = f"{verb.removesuffix('e')}ed", ("node", "nodes")
    endings = (f" to {verb}", f" {done}")
    return ActionInfo(sign, impact, verb, f"be {done}", nouns, endings, needs, phrase, takes, undoes, timeout)


_GAIN, _CHANGE, _LOSS = Impact.GAIN, Impact.CHANGE, Impact.LOSS

_TO_ITS_SIZE: Final = "back to its size before {plan}"

ACTIONS: Final[dict[ActionKind, ActionInfo]] = {
    ActionKind.RELEASE: ActionInfo(
        "!", _CHANGE, "release", "be released", ("release", "releases"), needs=JobDamaged, timeout=_MINUTE
    ),
    ActionKind.START: ActionInfo(
        *("+", _GAIN, "start", "start", ("start", "starts")),
        needs=JobWaits,
        takes=True,
        undoes="ran there before {plan}",
    ),
    ActionKind.GROW: ActionInfo(
        "~", _GAIN, "grow", "grow", ("growth", "growths"), takes=True, undoes=_TO_ITS_SIZE
    ),
    ActionKind.SHRINK: ActionInfo(
        "~", _CHANGE, "shrink", "shrink", ("shrink", "shrinks"), undoes=_TO_ITS_SIZE
    ),
    ActionKind.MIGRATE: ActionInfo(
        *(">", _CHANGE, "migrate", "migrate", ("migration", "migrations")),
        takes=True,
        undoes="back to where it ran before {plan}",
    ),
    ActionKind.PREEMPT: ActionInfo(
        "-", _LOSS, "preempt", "be preempted", ("preemption", "preemptions"), undoes="{plan} started it"
    ),
    ActionKind.SCALE_UP: _node(
        *("+", _GAIN, "add", NodeAbsent, "add {node} to pool {pool}"),
        undoes="{plan} had removed it",
        timeout=30 * _MINUTE,
    ),
    ActionKind.REPARTITION: ActionInfo(
        *("±", _CHANGE, "repartition", "be repartitioned", ("MIG layout", "MIG layouts")),
        endings=(" to change", " changed"),
        needs=GpuLayout,
        undoes="back to the layout before {plan}",
    ),
    ActionKind.UNCORDON: _node(
        "~", _GAIN, "uncordon", NodeExists, "uncordon {node}", undoes="{plan} had cordoned it"
    ),
    ActionKind.CORDON: _node("~", _CHANGE, "cordon", NodeExists, "cordon {node}", takes=True),
    ActionKind.DRAIN: _node("~", _CHANGE, "drain", NodeEmpty, "drain {node}"),
    ActionKind.SCALE_DOWN: _node(
        *("-", _LOSS, "remove", NodeEmpty, "remove {node} from pool {pool}"),
        takes=True,
        undoes="{plan} had added it",
        timeout=15 * _MINUTE,
    ),
}
"""Kinds that change a cluster. Views list jobs and nodes separately, the least disruptive kind first."""

NODE_KINDS: Final = frozenset(kind for kind, info in ACTIONS.items() if info.phrase)
"""Kinds about a whole node."""


class _Action(PlanBase):
    id: str
    """Id of the action, unique in the plan."""
    reason: Reason
    """Reason for the action."""
    preconditions: tuple[Precondition, ...] = ()
    """Conditions that must hold when the action is carried out."""
    after_actions: tuple[str, ...] = ()
    """Ids of actions that must be carried out before."""


class Start(_Action):
    """Start a waiting job on its planned places."""

    type: Literal["start"] = "start"
    job: Name
    """Job that starts."""
    before: None = None
    """Always null: the job holds nothing."""
    after: Placement
    """Placement after the action."""
    kill_at: Timestamp | None = Field(default=None, exclude_if=not_)
    """Time at which it is killed if it still runs: its places are promised to another job from then on."""
    recovery: Seconds = Field(default=0, exclude_if=not_)
    """Time to resume from its last checkpoint before it works; 0 if it has not run before."""


class Keep(_Action):
    """Leave a running job unchanged."""

    type: Literal["keep"] = "keep"
    job: Name
    """Job that is unchanged."""
    before: Placement
    """Placement before the action."""
    after: Placement
    """The same as `before`."""


class Preempt(_Action):
    """Preempt a running job, which waits again with the progress of its last checkpoint."""

    type: Literal["preempt"] = "preempt"
    job: Name
    """Job that is preempted."""
    before: Placement
    """Placement before the action."""
    after: None = None
    """Always null: the job will hold nothing."""
    resumes_at: Timestamp | None = Field(default=None, exclude_if=not_)
    """Planned time of its next start, as in `planned`."""


class Shrink(_Action):
    """Remove replicas of a running elastic job."""

    type: Literal["shrink"] = "shrink"
    job: Name
    """Job that gives up replicas."""
    before: Placement
    """Placement before the action."""
    after: Placement
    """Placement after the action."""
    interruption: Seconds = 0
    """Seconds to save and restore its state; unsaved work is lost in addition."""


class Grow(_Action):
    """Add replicas to a running elastic job."""

    type: Literal["grow"] = "grow"
    job: Name
    """Job that gets replicas."""
    before: Placement
    """Placement before the action."""
    after: Placement
    """Placement after the action."""
    interruption: Seconds = 0
    """Seconds to save and restore its state; unsaved work is lost in addition."""


class Migrate(_Action):
    """Stop a running job and resume it on other places from its last checkpoint."""

    type: Literal["migrate"] = "migrate"
    job: Name
    """Job that migrates."""
    before: Placement
    """Placement before the action."""
    after: Placement
    """Placement after the action."""
    recovery: Seconds = Field(default=0, exclude_if=not_)
    """Time to resume from its last checkpoint before it works there."""


class Release(_Action):
    """
    Release the lost places of a running job, and its other places unless it continues with them.

    Work lost by the failure does not count as a loss by the plan. A further action says what becomes of the
    job, as for every job: start, wait, keep or grow.
    """

    type: Literal["release"] = "release"
    job: Name
    """Job that has lost places."""
    before: Placement
    """Placement before the action, including lost places."""
    after: Placement | None = None
    """Places that it continues with; null if it waits again."""


class Repartition(_Action):
    """Change the MIG layout of one GPU; instances in use stay."""

    type: Literal["repartition"] = "repartition"
    node: Name
    """Node that has the GPU."""
    gpu: int
    """Index of the GPU on its node."""
    before: tuple[MigInstance, ...] | None
    """MIG instances now; null means MIG mode off."""
    after: tuple[MigInstance, ...]
    """MIG instances afterwards."""


class Cordon(_Action):
    """Stop new starts on a node from this step on."""

    type: Literal["cordon"] = "cordon"
    node: Name
    """Node that accepts no new jobs."""


class Uncordon(_Action):
    """Let new jobs start again on a node that an earlier plan cordoned; only rollbacks have it."""

    type: Literal["uncordon"] = "uncordon"
    node: Name
    """Node that accepts new jobs again."""


class Drain(_Action):
    """Confirm that no job is left on a node."""

    type: Literal["drain"] = "drain"
    node: Name
    """Node that must be empty."""


class ScaleUp(_Action):
    """Add one node to a pool."""

    type: Literal["scale_up"] = "scale_up"
    pool: Name
    """Pool that grows."""
    node: Name
    """Node that is added."""
    after: Node
    """The node as it will be, without `ready_at`."""
    provisioning: Seconds = 0
    """Time until the node accepts jobs."""


class ScaleDown(_Action):
    """Remove an empty node from a pool."""

    type: Literal["scale_down"] = "scale_down"
    pool: Name
    """Pool that shrinks."""
    node: Name
    """Node that is removed."""


class Wait(_Action):
    """Leave a pending job pending."""

    type: Literal["wait"] = "wait"
    job: Name
    """Job that stays pending."""
    before: None = None
    """Always null: the job holds nothing."""
    after: None = None
    """Always null: the job will hold nothing."""


JobAction: TypeAlias = Start | Keep | Preempt | Shrink | Grow | Migrate | Wait
"""Each job of the snapshot has exactly one of these."""

PoolAction: TypeAlias = ScaleUp | ScaleDown

NodeAction: TypeAlias = Repartition | Uncordon | Cordon | Drain | PoolAction

Disturbance: TypeAlias = Preempt | Shrink | Grow | Migrate
"""Actions by which a running job saves its state and stops, for good or to continue elsewhere."""

JobChangeAction: TypeAlias = Release | Start | Preempt | Shrink | Grow | Migrate
"""Actions that change where a job runs."""

Change: TypeAlias = JobChangeAction | NodeAction
"""Actions that an executor carries out."""

Action: TypeAlias = Annotated[Release | JobAction | NodeAction, Field(discriminator="type")]


def info_of(action: Change) -> ActionInfo:
    """Names, sign and check of the kind of an action."""
    return ACTIONS[ActionKind(action.type)]


def changes_of(actions: Iterable[Action]) -> list[Change]:
    """The actions that change the cluster, in their order."""
    return [action for action in actions if not isinstance(action, Keep | Wait)]


def added_nodes(actions: Iterable[Action]) -> tuple[Node, ...]:
    """Nodes that the actions add, in their order, without `ready_at`."""
    return tuple(action.after for action in actions if isinstance(action, ScaleUp))


def opened_nodes(actions: Iterable[Action]) -> tuple[str, ...]:
    """Names of the nodes that the actions uncordon, sorted."""
    return tuple(sorted(action.node for action in actions if isinstance(action, Uncordon)))


def removed_nodes(actions: Iterable[Action]) -> tuple[str, ...]:
    """Names of the nodes that the actions remove, sorted."""
    return tuple(sorted(action.node for action in actions if isinstance(action, ScaleDown)))
