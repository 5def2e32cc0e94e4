"""
The best plan of a tiny instance, found by trying everything and asking the verifier: no problem, no model.

Whatever the verifier allows is tried: nodes added and removed, every fate of every running job, and every
place for every waiting one; `offered` narrows that down to what a problem offers."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica, same_holdings
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.plan.violation import Rule
from gpuplan.models.units import MILLI, print_milli
from tests.support.builders import build
from tests.support.seeds import EVERY_SEED
from tests.support.strategies.random_targets import judged, sorted_by_job

MOST_JUDGED = 8_000 if EVERY_SEED else 2_000
"""Targets of one instance at most: of forty tiny instances the largest two took most of the time."""


@dataclass(frozen=True)
class Best:
    """The best target, its objective, and how many were judged."""

    target: DesiredState
    objective: int
    judged: int


class TooLargeError(Exception):
    """There is too much to try."""


def anything(_job, _after):
    """Every fate of a running job."""
    return True


def offered(problem):
    """Fates of running jobs that a problem offers: `(job, placement or None)` to true or false."""
    incumbents = {incumbent.job: incumbent for incumbent in problem.incumbents}

    def offers(job, after):
        incumbent, before = incumbents.get(job.name), job.running.replicas
        if after is not None and same_holdings(before, after.replicas):
            return True
        if incumbent is None:
            return False
        if after is None:
            return incumbent.stop_points is not None
        if len(after.replicas) < len(before):
            return len(after.replicas) >= incumbent.min_replicas
        return (incumbent.move if len(after.replicas) == len(before) else incumbent.grow) is not None

    return offers


def best_of_all(snapshot, policy, *, fates=anything):
    """
    Try everything; `fates` may rule out what becomes of a running job.

    Raises
    ------
    TooLargeError
        There is too much to try.
    """
    search = _Search(snapshot, policy, fates)
    for added, removed in _node_choices(snapshot):
        search.over(added, removed)
    return Best(search.best, search.objective, search.judged)


def everything_legal(snapshot, policy, *, fates=anything):
    """
    (target, objective) of every plan that breaks no rule, the order of priorities left out.

    Raises
    ------
    TooLargeError
        There is too much to try.
    """
    search = _Search(snapshot, policy.model_copy(update={"priority": build.BY_WEIGHT}), fates)
    for added, removed in _node_choices(snapshot):
        search.over(added, removed)
    return search.legal


class _Search:
    def __init__(self, snapshot, policy, fates):
        self.legal = []
        """(target, objective) of all targets that break no rule."""
        self.snapshot, self.policy, self.fates = snapshot, policy, fates
        self.judged = 0
        self.best = DesiredState(snapshot.running_placements)
        self.objective = self.judge(self.best).objective

    def judge(self, target):
        self.judged += 1
        if self.judged > MOST_JUDGED:
            raise TooLargeError
        return judged(self.snapshot, self.policy, target)

    def over(self, added, removed):
        """Everything with these nodes added and removed."""
        nodes = [node for node in (*self.snapshot.cluster.nodes, *added) if node.name not in removed]
        running = [job for job in self.snapshot.jobs if job.running]
        waiting = [job for job in self.snapshot.jobs if not job.running and not job.held]
        fates = [self._fates(job, nodes, added) for job in running]
        places = [[None, *self._places(job, nodes, added)] for job in waiting]
        for chosen in itertools.product(*fates):
            start = tuple(placement for placement in chosen if placement)
            if self._try(DesiredState(start, added, removed)):
                self._extend(start, places, added, removed)

    def _try(self, target):
        """Judge a target; False if it breaks a rule that no further start repairs."""
        verification = self.judge(target)
        if verification.violations:
            # What a job may not start before may still start.
            return all(each.rule is Rule.PRIORITY for each in verification.violations)
        self.legal.append((target, verification.objective))
        if verification.objective > self.objective:
            self.best, self.objective = target, verification.objective
        return True

    def _extend(self, placed, places, added, removed):
        if not places:
            return
        for placement in places[0]:
            more = placed if placement is None else (*placed, placement)
            if placement is None or self._try(DesiredState(sorted_by_job(more), added, removed)):
                self._extend(more, places[1:], added, removed)

    def _fates(self, job, nodes, added):
        """What may become of a running job by itself: placements, or None if it is stopped."""
        before, count = job.running.replicas, len(job.running.replicas)
        spots = self._spots(job, nodes, added)
        tried = [job.placement, None]
        for fewer in range(1, count):
            tried += [_placement(job, kept) for kept in itertools.combinations(before, fewer)]
        for more in range(1, job.gang.maximum - count + 1):
            tried += [
                _placement(job, (*before, *new))
                for new in itertools.combinations_with_replacement(spots, more)
            ]
        tried += [
            _placement(job, moved)
            for moved in itertools.combinations_with_replacement(spots, count)
            if not same_holdings(before, moved)
        ]
        others = tuple(each for each in self.snapshot.running_placements if each.job != job.name)
        return [
            after
            for after in tried
            if self.fates(job, after) and not self._breaks(job, others, after, (Rule.EVICTION,), added)
        ]

    def _places(self, job, nodes, added):
        spots = self._spots(job, nodes, added)
        for count in range(job.gang.minimum, job.gang.maximum + 1):
            for replicas in itertools.combinations_with_replacement(spots, count):
                placement = _placement(job, replicas)
                if not self._breaks(job, (), placement, (Rule.GANG, Rule.LOCALITY, Rule.SPREAD), added):
                    yield placement

    def _spots(self, job, nodes, added):
        """Every way to hold what one replica asks for, on a node that may take it."""
        others = tuple(each for each in self.snapshot.running_placements if each.job != job.name)
        rules = (Rule.SELECTION, Rule.REQUEST)
        return [
            replica
            for node in nodes
            for replica in _on_node(job, node)
            if not self._breaks(job, others, _placement(job, (replica,)), rules, added)
        ]

    def _breaks(self, job, others, after, rules, added):
        """True if this alone breaks one of the rules for the job."""
        placements = sorted_by_job((*others, *((after,) if after else ())))
        found = self.judge(DesiredState(placements, added)).violations
        return any(each.rule in rules and each.subject.split()[:2] == ["job", job.name] for each in found)


def _node_choices(snapshot):
    """Every choice of nodes added to and removed from pools, as far as the pools' limits go."""
    choices = []
    names = {node.name for node in snapshot.cluster.nodes}
    for pool in snapshot.cluster.pools:
        members = [node for node in snapshot.cluster.nodes if node.pool == pool.name]
        free = (number for number in itertools.count(1) if f"{pool.template.name}-{number}" not in names)
        fresh = [
            pool.template.model_copy(
                update={"name": f"{pool.template.name}-{number}", "pool": pool.name, "ready_at": None}
            )
            for number in itertools.islice(free, pool.maximum - len(members) + len(members))
        ]
        choices.append(
            [
                (tuple(fresh[:more]), removed)
                for fewer in range(len(members) + 1)
                for removed in itertools.combinations([node.name for node in members], fewer)
                for more in range(pool.maximum - len(members) + fewer + 1)
            ]
        )
    for chosen in itertools.product(*choices):
        added = tuple(node for some, _ in chosen for node in some)
        yield added, tuple(sorted(name for _, some in chosen for name in some))


def _on_node(job, node):
    """Every way to hold GPUs of a node."""
    request = job.request
    gpus = range(node.gpu_count)
    if request.gpus or request.gpu_milli:
        milli = MILLI if request.gpus else request.gpu_milli
        for indices in itertools.combinations(gpus, request.gpus or 1):
            yield _replica(job, node, tuple(GpuShare(index=index, milli=milli) for index in indices))
        return
    wanted = [profile for profile, count in sorted(request.mig.items()) for _ in range(count)]
    geometry = mig_geometry(node.gpu_model) if node.gpu_model else None
    each = [
        [
            MigSlice(index=index, profile=profile, start=start)
            for index in gpus
            for start in (
                geometry.profiles[profile].starts if geometry and profile in geometry.profiles else ()
            )
        ]
        for profile in wanted
    ]
    seen = set()
    for slices in itertools.product(*each):
        key = frozenset(Counter((held.index, held.profile, held.start) for held in slices).items())
        if key not in seen:
            seen.add(key)
            yield _replica(job, node, slices)


def _replica(job, node, held):
    request = job.request
    return Replica(
        node=node.name,
        gpus=held,
        cpus=print_milli(request.cpu_milli),
        memory_mib=request.memory_mib,
        disk_mib=request.disk_mib,
        resources=request.resources,
    )


def _placement(job, replicas):
    return Placement(job=job.name, replicas=tuple(replicas))
