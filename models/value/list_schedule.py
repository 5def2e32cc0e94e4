"""
List scheduling of whole GPUs over time: the first place where a job completes, and what it then takes.

Time is a list of seconds from now. What is free changes at some of them: the free GPUs of a node, or the GPUs
that a quota still allows. Such a profile is a pair of lists, the seconds and the number from each on.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, log2
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Profile: TypeAlias = tuple[list[int], list[int]]
"""Seconds at which a number of free GPUs changes, and that number from then on."""


class Choice(NamedTuple):
    """A GPU model on which a job may run."""

    seconds: int
    gpu_model: str
    nodes: tuple[int, ...]
    """Numbers of profiles: of nodes on which it may run."""
    quotas: tuple[int, ...] = ()
    """The same: of quotas that count it there."""


class ListedStart(NamedTuple):
    """Start of a job in a schedule."""

    begins: int
    choice: Choice
    places: tuple[int, ...]
    """The node of each replica."""


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A waiting job in a list."""

    name: str
    gpus: int
    """Of one replica."""
    replicas: int
    weight: float
    choices: tuple[Choice, ...]
    """The fastest GPU model first."""

    def index(self, power: float) -> float:
        """Smith's index as a logarithm, for jobs that count their GPUs to a power; the least comes first."""
        return log2(self.choices[0].seconds) + power * log2(self.gpus * self.replicas) - log2(self.weight)


def copy_of(free: Sequence[Profile]) -> list[Profile]:
    """Profiles that can be changed."""
    return [(list(times), list(counts)) for times, counts in free]


def take(free: Sequence[Profile], job: ListedJob, start: ListedStart) -> None:
    """Take what a job holds from its start to its end."""
    end = start.begins + start.choice.seconds
    for node in start.places:
        _occupy(*free[node], start.begins, end, job.gpus)
    for quota in start.choice.quotas:
        _occupy(*free[quota], start.begins, end, job.gpus * job.replicas)


def start_now(job: ListedJob, free: Sequence[Profile]) -> ListedStart | None:
    """The fastest start now, on the fullest nodes; None if there is no room to the end of the job."""
    for choice in job.choices:
        room = {node: _least_free(*free[node], 0, choice.seconds) for node in choice.nodes}
        found: list[int] = []
        for node in sorted(room, key=lambda each: room[each]):
            found += [node] * min(job.replicas - len(found), max(0, room[node]) // job.gpus)
        start = ListedStart(0, choice, tuple(found))
        if len(found) == job.replicas and _within_quotas(job, start, free):
            return start
    return None


def first_free(times: list[int], counts: list[int]) -> int:
    """The first second at which something is free, or the last change."""
    position, last = 0, len(counts) - 1
    while position < last and counts[position] <= 0:
        position += 1
    return times[position]


def first_start(
    job: ListedJob, choices: Iterable[Choice], free: Sequence[Profile], first: Sequence[int]
) -> ListedStart:
    """
    Where and when a job completes first; each of the choices has room for it in the end.

    A job of one replica gets the node with the fewest free GPUs then, a gang the first nodes of one model.
    `first` has `first_free` of each profile.
    """
    if job.replicas == 1:
        start = _first_place(job, choices, free, first)
    else:
        start = _first_places(job, choices, free)
    if _within_quotas(job, start, free):
        return start
    return _first_places(job, choices, free, with_quotas=True)


def _within_quotas(job: ListedJob, start: ListedStart, free: Sequence[Profile]) -> bool:
    begins, choice, _ = start
    needed = job.gpus * job.replicas
    return all(
        _least_free(*free[quota], begins, begins + choice.seconds) >= needed for quota in choice.quotas
    )


def _first_place(
    job: ListedJob, choices: Iterable[Choice], free: Sequence[Profile], first: Sequence[int]
) -> ListedStart:
    gpus, left, found = job.gpus, 0, None
    earliest: float = inf
    for choice in choices:
        seconds = choice.seconds
        if seconds >= earliest:
            break
        latest = earliest - seconds
        for node in choice.nodes:
            # Most nodes are passed over here: the job would complete later there.
            if first[node] > latest:
                continue
            times, counts = free[node]
            last, position = len(times), 0
            while position < last:
                if counts[position] < gpus:
                    position += 1
                    continue
                end = times[position] + seconds
                if end > earliest or (end == earliest and counts[position] >= left):
                    break
                further = position + 1
                while further < last and times[further] < end and counts[further] >= gpus:
                    further += 1
                if further == last or times[further] >= end:
                    earliest, left, latest = end, counts[position], times[position]
                    found = ListedStart(times[position], choice, (node,))
                    break
                position = further
    assert found is not None  # noqa: S101 - once all others have ended there is room
    return found


def _first_places(
    job: ListedJob, choices: Iterable[Choice], free: Sequence[Profile], *, with_quotas: bool = False
) -> ListedStart:
    found: tuple[int, Choice] | None = None
    earliest: float = inf
    for choice in choices:
        begins = first_begin(job, choice, free, earliest, choice.quotas if with_quotas else ())
        if begins is not None:
            earliest, found = begins + choice.seconds, (begins, choice)
    assert found is not None  # noqa: S101 - once all others have ended there is room
    begins, choice = found
    end, places, nodes = begins + choice.seconds, list[int](), choice.nodes
    if job.replicas == 1:
        nodes = tuple(sorted(nodes, key=lambda each: _least_free(*free[each], begins, end)))
    for node in nodes:
        room = max(0, _least_free(*free[node], begins, end)) // job.gpus
        places += [node] * min(room, job.replicas - len(places))
        if len(places) == job.replicas:
            break
    return ListedStart(begins, choice, tuple(places))


def first_begin(
    job: ListedJob, choice: Choice, free: Sequence[Profile], earliest: float, quotas: Sequence[int] = ()
) -> int | None:
    """First second from which all replicas have room on a GPU model, if the job then completes earlier."""
    seconds, steps = choice.seconds, list[tuple[int, int]]()
    for node in choice.nodes:
        times, counts = free[node]
        for needed in range(job.gpus, min(max(counts), job.replicas * job.gpus) + 1, job.gpus):
            steps += _long_spans(times, counts, needed, seconds, 1)
    # A quota counts as more replicas than the nodes have room for.
    most = sum(step for _, step in steps if step > 0) + 1
    for quota in quotas:
        steps += _long_spans(*free[quota], job.gpus * job.replicas, seconds, most)
    room, needed = 0, job.replicas + most * len(quotas)
    for second, step in sorted(steps):
        room += step
        if room >= needed:
            return second if second + seconds < earliest else None
    return None


def _long_spans(
    times: list[int], counts: list[int], needed: int, seconds: int, step: int
) -> list[tuple[int, int]]:
    """Where begins with so many free GPUs for so long become possible (`step`) and impossible (−`step`)."""
    found: list[tuple[int, int]] = []
    since = None
    for second, count in zip(times, counts, strict=True):
        if count < needed:
            if since is not None and second - since >= seconds:
                found += [(since, step), (second - seconds + 1, -step)]
            since = None
        elif since is None:
            since = second
    if since is not None:
        found.append((since, step))
    return found


def _least_free(times: list[int], counts: list[int], begins: int, ends: int) -> int:
    """The fewest free GPUs in a span."""
    least = counts[0]
    for second, count in zip(times, counts, strict=True):
        if second >= ends:
            break
        least = count if second <= begins else min(least, count)
    return least


def _occupy(times: list[int], counts: list[int], begins: int, ends: int, gpus: int) -> None:
    """Take GPUs in a span."""
    for second in (begins, ends):
        position = len(times)
        while times[position - 1] > second:
            position -= 1
        if times[position - 1] != second:
            times.insert(position, second)
            counts.insert(position, counts[position - 1])
    for position, second in enumerate(times):
        if begins <= second < ends:
            counts[position] -= gpus
