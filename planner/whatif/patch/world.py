"""World: a snapshot and its policy as mutable parts, and the selectors of its nodes and jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import Field, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.cluster import Node, rack_of
from gpuplan.models.errors import Suggestions, truncated_names
from gpuplan.models.timing.durations import Durations
from gpuplan.models.units import AtLeastOne, Label, Name

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot

Faults: TypeAlias = Iterator[str]
"""Messages about why a change does not fit the world."""


class _Choice(Noun):
    """Conditions; at least one must be given, so that a mistake does not select everything."""

    @model_validator(mode="before")
    @classmethod
    def _chooses(cls, data: Any) -> Any:
        known = {field.alias or name for name, field in cls.model_fields.items()} - {"count"}
        if isinstance(data, dict) and not known & data.keys() and not data.keys() - {"count"}:
            raise ValueError(f"expected at least one of {', '.join(sorted(known))}")
        return data


class NodeChoice(_Choice):
    """Selects nodes of the cluster."""

    names: tuple[Name, ...] = ()
    """Nodes with one of these names; each must exist."""
    rack: Label | None = None
    """Nodes of this rack."""
    zone: Label | None = None
    """Nodes of this zone."""
    region: Label | None = None
    """Nodes of this region."""
    pool: Name | None = None
    """Nodes of this pool."""
    gpu_model: Name | None = None
    """Nodes with GPUs of this model."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Nodes with all of these labels."""
    every: bool = Field(default=False, alias="all")
    """True: every node that meets the other conditions."""
    count: AtLeastOne | None = None
    """Number of nodes to select, the first by name; if absent, all of them."""

    def holds(self, node: Node) -> bool:
        """True if the node meets all conditions."""
        places = ((self.rack, node.rack), (self.zone, node.zone), (self.region, node.region))
        kinds = ((self.pool, node.pool), (self.gpu_model, node.gpu_model))
        return (
            (not self.names or node.name in self.names)
            and all(wanted in (None, found) for wanted, found in (*places, *kinds))
            and self.labels.items() <= node.labels.items()
        )


class JobChoice(_Choice):
    """Selects running or waiting jobs."""

    names: tuple[Name, ...] = ()
    """Jobs with one of these names; each must exist."""
    queue: Name | None = None
    """Jobs of this queue."""
    user: Name | None = None
    """Jobs of this user."""
    labels: dict[Name, Label] = Field(default_factory=dict)
    """Jobs with all of these labels."""
    waiting: bool = False
    """True: only waiting jobs."""

    def holds(self, job: Job) -> bool:
        """True if the job meets all conditions."""
        return (
            (not self.names or job.name in self.names)
            and self.queue in (None, job.queue)
            and self.user in (None, job.user)
            and self.labels.items() <= job.labels.items()
            and not (self.waiting and job.running)
        )


def expect_one_of(data: Noun, *names: str) -> None:
    """Check that exactly one of these fields is given."""
    given = _given(data, names)
    if len(given) != 1:
        found = " and ".join(given) if given else "none"
        raise ValueError(f"expected one of {', '.join(names)}, found {found}")


def expect_some_of(data: Noun, *names: str) -> None:
    """Check that at least one of these fields is given."""
    if not _given(data, names):
        stated = (type(data).model_fields[name].alias or name for name in names)
        raise ValueError(f"expected at least one of {', '.join(stated)}, found none")


def _given(data: Noun, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if getattr(data, name) not in (None, ())]


class SnapshotSections:
    """Every section as a dict by name; `snapshot()` assembles them again."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        cluster = snapshot.cluster
        self.base, self.policy = snapshot, policy
        self.nodes = {node.name: node for node in cluster.nodes}
        self.pools = {pool.name: pool for pool in cluster.pools}
        self.tariffs = {tariff.name: tariff for tariff in cluster.tariffs}
        self.reservations = {each.name: each for each in cluster.reservations}
        self.queues = {queue.name: queue for queue in snapshot.queues}
        self.jobs = {job.name: job for job in snapshot.jobs}
        self._near = Suggestions()

    def snapshot(self) -> Snapshot:
        """Return the world as a snapshot; the base object itself if nothing has changed."""
        templates = (pool.template for pool in self.pools.values())
        standing = {rack_of(node) for node in (*self.nodes.values(), *templates)}
        cluster = self.base.cluster.model_copy(
            update={
                "nodes": tuple(self.nodes.values()),
                "pools": tuple(self.pools.values()),
                "tariffs": tuple(self.tariffs.values()),
                "reservations": tuple(self.reservations.values()),
                # A rack without nodes needs no cap.
                "rack_power": tuple(cap for cap in self.base.cluster.rack_power if rack_of(cap) in standing),
            }
        )
        queues, jobs = tuple(self.queues.values()), tuple(self.jobs.values())
        if cluster == self.base.cluster and queues == self.base.queues and jobs == self.base.jobs:
            return self.base
        return self.base.model_copy(update={"cluster": cluster, "queues": queues, "jobs": jobs}).canonical()

    def unknown(self, what: str, name: str, known: Iterable[str]) -> Iterator[str]:
        """Yield a message if the name is unknown."""
        names = set(known)
        if name not in names:
            hint = self._near.hint(name, sorted(names))
            yield f"there is no {what} '{name}'.\n  Known: {truncated_names(names) or 'none'}.{hint}"

    def choose_nodes(self, choice: NodeChoice) -> tuple[list[Node], list[str]]:
        """Return the selected nodes sorted by name, and the problems of the selector."""
        nodes = self.nodes.values()
        faults = [fault for name in choice.names for fault in self.unknown("node", name, self.nodes)]
        stated = {
            "rack": (choice.rack, {node.rack for node in nodes if node.rack}),
            "zone": (choice.zone, {node.zone for node in nodes if node.zone}),
            "region": (choice.region, {node.region for node in nodes if node.region}),
            "node of pool": (choice.pool, {node.pool for node in nodes if node.pool}),
            "node with GPU model": (choice.gpu_model, {node.gpu_model for node in nodes if node.gpu_model}),
        }
        for what, (name, known) in stated.items():
            if name is not None:
                faults += self.unknown(what, name, known)
        chosen = sorted((node for node in nodes if choice.holds(node)), key=lambda node: node.name)
        if not chosen and not faults:
            faults.append("no node meets all of these conditions; expected at least one that does.")
        if choice.count is not None and len(chosen) < choice.count and not faults:
            faults.append(f"{len(chosen)} nodes meet these conditions; expected at least {choice.count}.")
        return chosen[: choice.count], faults

    def choose_jobs(self, choice: JobChoice) -> tuple[list[Job], list[str]]:
        """Return the selected jobs sorted by name, and the problems of the selector."""
        faults = [fault for name in choice.names for fault in self.unknown("job", name, self.jobs)]
        if choice.queue is not None:
            faults += self.unknown("queue", choice.queue, self.queues)
        if choice.user is not None:
            faults += self.unknown("job of user", choice.user, {job.user for job in self.jobs.values()})
        chosen = sorted((job for job in self.jobs.values() if choice.holds(job)), key=lambda job: job.name)
        if not chosen and not faults:
            faults.append("no job meets all of these conditions; expected at least one that does.")
        return chosen, faults

    def change_nodes(self, choice: NodeChoice, change: Callable[[Node], Node | None]) -> Faults:
        """Apply `change` to each selected node; a node for which it returns None is removed."""
        chosen, faults = self.choose_nodes(choice)
        yield from faults
        for node in chosen:
            changed = change(node)
            if changed is None:
                del self.nodes[node.name]
            else:
                self.nodes[node.name] = changed

    def stop(self, lost: Callable[[Job], bool]) -> None:
        """Stop the running jobs for which `lost` is true; they wait again with their saved progress."""
        durations = Durations(self.base, self.policy)
        for name, job in self.jobs.items():
            if job.running is not None and lost(job):
                self.jobs[name] = durations.stopped(job)
