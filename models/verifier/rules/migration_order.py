"""The rule that a plan is executable: an order exists in which every migration finds room."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from gpuplan.models.mig import MEDIA_EXTENSIONS, mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Replica
from gpuplan.models.plan.violation import Rule, Violation
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.job_changes import Change
from gpuplan.models.verifier.messages import format_mig_instance, truncated_names
from gpuplan.models.verifier.rules.capacity import charged_amounts, offered_amounts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.job import Job
    from gpuplan.models.verifier.context import Context

_MEMORY_SLICES: Final = 8
"""Memory slices that model any GPU; enough for all MIG geometries."""
_MEDIA: Final = -1
"""Stands in for a memory slice: the media extensions, which a GPU has once."""

_Part: TypeAlias = tuple[str, int, int] | tuple[str, str]
"""A unit of capacity on a node: (node, GPU index, memory slice), or (node, unit)."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A job that migrates from its old places to its new ones."""

    job: str
    old: Counter[_Part]
    new: Counter[_Part]


def feasible_move_order(case: Context) -> Iterator[Violation]:
    """
    After all preemptions and shrinks, each migration in some order finds the resources it takes free.

    The old places of a migrating job count as free for itself, except the slices of a MIG instance: its new
    instance must be created before it comes. Starts and growth come last and fit if the placements together
    fit. Migrations are tried by name, and again when resources that they take are released. Whole GPUs and
    MIG instances have one holder in the end, so an early migration never blocks another. Of migrations that
    compete for shares or CPU the first goes first, and one that then finds no room is not carried out.
    """
    moves = sorted(
        (
            _Move(
                job.name,
                _parts(case, job, job.running.replicas if job.running else ()),
                _parts(case, job, occupant.placement.replicas),
            )
            for job, occupant in case.with_change(Change.MOVED)
        ),
        key=lambda move: move.job,
    )
    if not moves:
        return
    for job, occupant in case.with_change(Change.MOVED):
        yield from _onto_its_own_slices(case, job, occupant.placement.replicas)
    held = _held_by_others(case)
    # Until a job moves, nothing else can have its old places.
    for move in moves:
        held.update(move.old)
    room = _room(case, moves, held)
    takers: dict[_Part, list[_Move]] = defaultdict(list)
    for move in moves:
        for part in move.new:
            takers[part].append(move)
    gone: set[str] = set()
    queue = deque(moves)
    while queue:
        move = queue.popleft()
        if move.job not in gone and _try_move(move, held, room):
            gone.add(move.job)
            # Only moves that take something of what was released may have become possible.
            again = {taker.job: taker for part in move.old for taker in takers.get(part, ())}
            queue.extend(taker for name, taker in sorted(again.items()) if name not in gone)
    waiting = [move for move in moves if move.job not in gone]
    for move in waiting:
        short = {
            part for part, amount in move.new.items() if held[part] - move.old[part] + amount > room[part]
        }
        blockers = [other.job for other in waiting if other is not move and not short.isdisjoint(other.old)]
        found = f"waits for {truncated_names(blockers)} to move"
        yield Violation(Rule.ORDER, f"job {move.job}", found, "an order in which every move finds room")


def _onto_its_own_slices(case: Context, job: Job, after: Iterable[Replica]) -> Iterator[Violation]:
    """A new instance cannot be created before the job has left an old one that it overlaps."""
    old = _instances(job.running.replicas if job.running else ())
    for name, new in sorted(_instances(after) - old, key=str):
        taken = {*_slices(case, name, new)}
        for _, held in sorted((each for each in old if each[0] == name), key=str):
            if held.index == new.index and taken & {*_slices(case, name, held)}:
                found = (
                    f"needs slices of its own {held.profile} at slice {held.start} for "
                    f"{format_mig_instance(new)}"
                )
                yield Violation(
                    Rule.ORDER, f"job {job.name}", found, "instances that do not overlap its old ones"
                )


def _instances(replicas: Iterable[Replica]) -> set[tuple[str, MigSlice]]:
    return {
        (replica.node, held)
        for replica in replicas
        for held in replica.gpus
        if not isinstance(held, GpuShare)
    }


def _try_move(move: _Move, held: Counter[_Part], room: Counter[_Part]) -> bool:
    """Carry out a migration if all that it takes is free; False if it is not."""
    if any(held[part] - move.old[part] + amount > room[part] for part, amount in move.new.items()):
        return False
    held.subtract(move.old)
    held.update(move.new)
    return True


def _held_by_others(case: Context) -> Counter[_Part]:
    """Holdings of jobs that do not migrate, after all preemptions and shrinks."""
    held: Counter[_Part] = Counter()
    for occupant in case.judged_placements:
        if occupant.job:
            replicas = occupant.placement.replicas
            # New replicas of starts and growth come last, and hold nothing while jobs move.
            stay = [replica for number, replica in enumerate(replicas) if number not in occupant.new]
            held.update(_parts(case, occupant.job, stay))
    return held


def _room(case: Context, moves: list[_Move], held: Counter[_Part]) -> Counter[_Part]:
    """
    Maximum usage of each part that a migration takes.

    It is the capacity; or the usage before or after the plan, if that is larger, since other rules check
    these.
    """
    before: Counter[_Part] = Counter()
    for job in case.running:
        if job.running:
            before.update(_parts(case, job, job.running.replicas))
    after = held.copy()
    for move in moves:
        after.subtract(move.old)
        after.update(move.new)
    taken = {part for move in moves for part in move.new}
    return Counter({part: max(_offered(case, part), before[part], after[part]) for part in taken})


def _offered(case: Context, part: _Part) -> int:
    if len(part) == 3:
        return 1 if part[2] == _MEDIA else MILLI
    node = case.nodes.get(part[0])
    return offered_amounts(node).get(part[1], 0) if node else 0


def _parts(case: Context, job: Job, replicas: Iterable[Replica]) -> Counter[_Part]:
    """
    All holdings of replicas.

    A GPU is eight memory slices of 1000 thousandths. A share takes its thousandths of every slice, a MIG
    instance all of its own slices. So an instance and a share never fit on one GPU, and two instances fit if
    they do not overlap.
    """
    parts: Counter[_Part] = Counter()
    for replica in replicas:
        for unit, amount in charged_amounts(case, job, replica).items():
            if amount:
                parts[replica.node, unit] += amount
        for held in replica.gpus:
            if isinstance(held, GpuShare):
                slices, milli = range(_MEMORY_SLICES), held.milli
            else:
                slices, milli = _slices(case, replica.node, held), MILLI
                if held.profile.endswith(MEDIA_EXTENSIONS):
                    parts[replica.node, held.index, _MEDIA] += 1
            for memory_slice in slices:
                parts[replica.node, held.index, memory_slice] += milli
    return parts


def _slices(case: Context, name: str, held: MigSlice) -> range:
    """Memory slices of an instance; of an unknown profile only the first, where no other instance starts."""
    node = case.nodes.get(name)
    geometry = mig_geometry(node.gpu_model) if node and node.gpu_model else None
    profile = geometry.profiles.get(held.profile) if geometry else None
    return range(held.start, held.start + (profile.memory_slices if profile else 1))
