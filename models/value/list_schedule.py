"""
List scheduling of whole GPUs over time: the first place where a job completes, and what it then takes.

Time is a list of seconds from now. What is free changes at some of them: the free GPUs of a node, or the GPUs
that a quota still allows. Such a profile is a pair of lists, the seconds and the number from each on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
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


Taken: TypeAlias = list[tuple[int, Profile]]
"""The profiles that a start changes, by number, as they are with it."""


class FreeGpus:
    """
    What is free over time, and the first second at which each profile has room for a replica.

    Profiles are replaced, never changed, so that copies share them.
    """

    def __init__(self, profiles: Iterable[Profile], sizes: Iterable[int]) -> None:
        self.profiles: list[Profile] = list(profiles)
        self.first = {gpus: [0] * len(self.profiles) for gpus in sorted(set(sizes))}
        """By GPUs of a replica: second of the first room in each profile, or of its last change."""
        for number in range(len(self.profiles)):
            self._find_first(number)

    def copy(self) -> FreeGpus:
        """The same, to be changed by itself."""
        other = FreeGpus((), ())
        other.profiles = list(self.profiles)
        other.first = {gpus: list(seconds) for gpus, seconds in self.first.items()}
        return other

    def take(self, job: ListedJob, start: ListedStart) -> Taken:
        """Take what a job holds from its start to its end."""
        begins, choice, places = start
        end, profiles, taken = begins + choice.seconds, self.profiles, list[tuple[int, Profile]]()
        for node in dict.fromkeys(places):
            times, counts = held = _occupied(profiles[node], begins, end, job.gpus * places.count(node))
            taken.append((node, held))
            profiles[node] = held
            for gpus, seconds in self.first.items():
                # A beginning outside of the span has as much room as before.
                if begins <= seconds[node] < end:
                    position, last = bisect_left(times, seconds[node]), len(counts) - 1
                    while position < last and counts[position] < gpus:
                        position += 1
                    seconds[node] = times[position]
        for quota in choice.quotas:
            profiles[quota] = _occupied(profiles[quota], begins, end, job.gpus * job.replicas)
            taken.append((quota, profiles[quota]))
        return taken

    def take_again(self, takings: Iterable[Taken]) -> None:
        """Take in order what was taken, in the same order and from the same beginning, before."""
        latest: dict[int, Profile] = {}
        for taken in takings:
            latest.update(taken)
        for number, profile in latest.items():
            self.profiles[number] = profile
            self._find_first(number)

    def _find_first(self, number: int) -> None:
        times, counts = self.profiles[number]
        position, last = 0, len(counts) - 1
        for gpus, seconds in self.first.items():  # from few to many
            while position < last and counts[position] < gpus:
                position += 1
            seconds[number] = times[position]

    def least(self, number: int, begins: int, ends: int) -> int:
        """The fewest free GPUs of a profile in a span."""
        times, counts = self.profiles[number]
        return min(counts[bisect_right(times, begins) - 1 : bisect_left(times, ends)])


def start_now(job: ListedJob, free: FreeGpus) -> ListedStart | None:
    """The fastest start now, on the fullest nodes; None if there is no room to the end of the job."""
    first = free.first[job.gpus]
    if 0 not in first:
        return None
    for choice in job.choices:
        room = {node: free.least(node, 0, choice.seconds) for node in choice.nodes if first[node] == 0}
        found: list[int] = []
        for node in sorted(room, key=lambda each: room[each]):
            found += [node] * min(job.replicas - len(found), max(0, room[node]) // job.gpus)
        start = ListedStart(0, choice, tuple(found))
        if len(found) == job.replicas and _within_quotas(job, start, free):
            return start
    return None


def first_start(job: ListedJob, choices: Iterable[Choice], free: FreeGpus, shortest: int = 0) -> ListedStart:
    """
    Where and when a job completes first; each of the choices has room for it in the end.

    A job of one replica gets the node with the fewest free GPUs then, a gang the first nodes of one model.
    All jobs of its size that follow hold GPUs for at least `shortest` seconds. `free.first` notes what
    none of them need look at again; what is free stays as it is.
    """
    if job.replicas == 1:
        start = _first_place(job, choices, free, shortest)
    else:
        start = _first_places(job, choices, free)
    if _within_quotas(job, start, free):
        return start
    return _first_places(job, choices, free, with_quotas=True)


def _within_quotas(job: ListedJob, start: ListedStart, free: FreeGpus) -> bool:
    begins, choice, _ = start
    if not choice.quotas:
        return True
    needed = job.gpus * job.replicas
    return all(free.least(quota, begins, begins + choice.seconds) >= needed for quota in choice.quotas)


def _first_place(job: ListedJob, choices: Iterable[Choice], free: FreeGpus, shortest: int) -> ListedStart:
    gpus, left, begins = job.gpus, 0, 0
    found: tuple[Choice, int] | None = None
    first, profiles = free.first[gpus], free.profiles
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
            times, counts = profiles[node]
            last, position = len(times), bisect_left(times, first[node])
            useless = True
            while position < last:
                if counts[position] < gpus:
                    position += 1
                    continue
                if useless:
                    first[node] = times[position]
                end = times[position] + seconds
                if end > earliest or (end == earliest and counts[position] >= left):
                    break
                further = position + 1
                while further < last and times[further] < end and counts[further] >= gpus:
                    further += 1
                if further == last or times[further] >= end:
                    earliest, left, begins = end, counts[position], times[position]
                    latest, found = begins, (choice, node)
                    break
                # What is too short for all that follow is not looked at again.
                useless = useless and times[further] - times[position] < shortest
                position = further
    assert found is not None  # noqa: S101 - once all others have ended there is room
    return ListedStart(begins, found[0], (found[1],))


def _first_places(
    job: ListedJob, choices: Iterable[Choice], free: FreeGpus, *, with_quotas: bool = False
) -> ListedStart:
    found: tuple[int, Choice] | None = None
    earliest: float = inf
    for choice in choices:
        begins = first_begin(job, choice, free, earliest, choice.quotas if with_quotas else ())
        if begins is not None:
            earliest, found = begins + choice.seconds, (begins, choice)
    assert found is not None  # noqa: S101 - once all others have ended there is room
    begins, choice = found
    end, places, first = begins + choice.seconds, list[int](), free.first[job.gpus]
    nodes = [node for node in choice.nodes if first[node] <= begins]
    if job.replicas == 1:
        nodes.sort(key=lambda each: free.least(each, begins, end))
    for node in nodes:
        room = max(0, free.least(node, begins, end)) // job.gpus
        places += [node] * min(room, job.replicas - len(places))
        if len(places) == job.replicas:
            break
    return ListedStart(begins, choice, tuple(places))


def first_begin(
    job: ListedJob, choice: Choice, free: FreeGpus, earliest: float, quotas: Sequence[int] = ()
) -> int | None:
    """First second from which all replicas have room on a GPU model, if the job then completes earlier."""
    seconds, first = choice.seconds, free.first[job.gpus]
    # A quota counts as more replicas than the nodes have room for.
    most = 1 + job.replicas * len(choice.nodes)
    steps = [
        step
        for quota in quotas
        for step in _long_spans(*free.profiles[quota], job.gpus * job.replicas, seconds, most)
    ]
    heapify(steps)
    # Nodes are asked only when the time comes at which they have room: the job has begun before most of them.
    opening, asked = sorted(choice.nodes, key=first.__getitem__), 0
    room, needed = 0, job.replicas + most * len(quotas)
    while True:
        while asked < len(opening) and not (steps and steps[0][0] < first[opening[asked]]):
            times, counts = free.profiles[opening[asked]]
            for size in range(job.gpus, min(max(counts), job.replicas * job.gpus) + 1, job.gpus):
                for step in _long_spans(times, counts, size, seconds, 1):
                    heappush(steps, step)
            asked += 1
        if not steps or steps[0][0] + seconds >= earliest:
            return None
        second, more = heappop(steps)
        room += more
        if room >= needed:
            return second


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


def _occupied(profile: Profile, begins: int, ends: int, gpus: int) -> Profile:
    """A profile without GPUs that are taken in a span."""
    times, counts = profile[0].copy(), profile[1].copy()
    low = bisect_left(times, begins)
    if low == len(times) or times[low] != begins:
        times.insert(low, begins)
        counts.insert(low, counts[low - 1])
    high = bisect_left(times, ends, low)
    if high == len(times) or times[high] != ends:
        times.insert(high, ends)
        counts.insert(high, counts[high - 1])
    for position in range(low, high):
        counts[position] -= gpus
    return times, counts
