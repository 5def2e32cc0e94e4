"""
Remedies tried out without the planner: the change is made here, and the job put everywhere.

Only the verifier is asked whether it may start; what is tried is every way to hold what the job asks for.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from datetime import timedelta

from gpuplan.models.affinity import Toleration
from gpuplan.models.cluster import Level
from gpuplan.models.dependency import FinishedJob
from gpuplan.models.eligibility.node_eligibility import format_match
from gpuplan.models.gang import Gang
from gpuplan.models.placement import Placement, Running
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.plan.violation import Rule
from gpuplan.models.units import MILLI
from gpuplan.planner.analysis.projected_schedule import ProjectedSchedule
from gpuplan.planner.analysis.target_cluster import cluster_after
from gpuplan.planner.explain.explanation import RemedyKind
from tests.support.builders.build import NOW
from tests.support.oracles.brute_force import TooLargeError, _on_node
from tests.support.strategies.random_targets import judged, sorted_by_job

MOST_JUDGED = 400
"""Placements of one job at most: a larger search takes too long."""

WIDER = (*Level, None)
STEPS = {RemedyKind.QUOTA: -0.001, RemedyKind.REPLICAS: 1, RemedyKind.CPUS: 0.001, RemedyKind.MEMORY: 1}
STEPS |= {RemedyKind.SPREAD: -1, RemedyKind.NODE: -1, RemedyKind.WAIT: -1, RemedyKind.POWER: -1}
"""By kind, what makes the amount of a change one step smaller."""


@dataclass(frozen=True)
class World:
    """What the verifier is asked about, and the job that is to start."""

    snapshot: object
    policy: object
    target: object
    job: str
    otherwise: World | None = None
    """The same, come about in another way."""

    def may_start(self):
        """True if the job, and all that start with it, as small as may be, break no rule on some places."""
        members = self._members()
        every = itertools.product(*(self._choices(job, alone=len(members) == 1) for job in members))
        for number, choice in enumerate(every):
            if number == MOST_JUDGED:
                raise TooLargeError
            if not self._violations(dict(zip(members, choice, strict=True))):
                return True
        return self.otherwise is not None and replace(self.otherwise, job=self.job).may_start()

    def _members(self):
        """The job, and the waiting ones that have to start with it."""
        job, jobs = self.snapshot.job_by_name[self.job], self.snapshot.jobs
        group = [other for other in jobs if job.co_start and other.co_start == job.co_start]
        placed = {each.job for each in self.target.placements}
        if any(other.running for other in group):
            return [self.job]
        return [
            self.job,
            *(each.name for each in group if each != job and not each.held and each.name not in placed),
        ]

    def _choices(self, name, *, alone):
        job = self.snapshot.job_by_name[name]
        later = (Rule.GANG, Rule.LOCALITY, *(() if alone else (Rule.DEPENDENCIES,)))
        spots = [
            replica
            for node in (*self.snapshot.cluster.nodes, *self.target.added)
            if node.name not in self.target.removed
            for replica in _on_node(job, node)
            if not self._violations({name: (replica,)}, but=later)
        ]
        return itertools.islice(
            itertools.combinations_with_replacement(spots, job.gang.minimum), MOST_JUDGED + 1
        )

    def _violations(self, replicas_of, but=()):
        new = [Placement(job=name, replicas=tuple(replicas)) for name, replicas in replicas_of.items()]
        target = replace(
            self.target,
            placements=sorted_by_job((*self.target.placements, *new)),
            planned=tuple(each for each in self.target.planned if each.job not in self._members()),
        )
        found = judged(self.snapshot, self.policy, target).violations
        return [each for each in found if each.rule not in but]


def as_planned(plan, name):
    """With everything as the plan leaves it."""
    return World(plan.snapshot, plan.policy, plan.target, name)


def changed(plan, name, parts):
    """With some parts of a remedy."""
    world = as_planned(plan, name)
    for part in parts:
        # What is said of another member is done to that one.
        world = replace(_with(replace(world, job=part.job or name), part), job=name)
    return world


def _with(world, part):
    """With one part, in whichever way the world has come about."""
    seen = _CHANGES[part.kind](world, part)
    if world.otherwise is None:
        return seen
    return replace(seen, otherwise=_with(replace(world.otherwise, job=world.job), part))


def lesser(parts, *, waits_from=0):
    """
    Every way to do a little less: each part left out, and each amount one step smaller.

    Waiting less counts from some second on; up to there the plan itself says that the job does not start.
    """
    for number, part in enumerate(parts):
        others = (*parts[:number], *parts[number + 1 :])
        yield others
        if part.kind is RemedyKind.LOCALITY:
            nearer = WIDER[WIDER.index(part.after and Level(part.after)) - 1]
            yield (*others, part.model_copy(update={"after": nearer.value}))
        elif part.kind in STEPS:
            after = round(part.after + STEPS[part.kind], 3)
            if part.kind is RemedyKind.WAIT and after < max(1, waits_from):
                continue
            yield (*others, part.model_copy(update={"after": after}))


def _with_job(world, **update):
    return _with_jobs(world, {world.job: world.snapshot.job_by_name[world.job].model_copy(update=update)})


def _with_jobs(world, changed_jobs):
    jobs = tuple(changed_jobs.get(job.name, job) for job in world.snapshot.jobs)
    return replace(world, snapshot=world.snapshot.model_copy(update={"jobs": jobs}))


def _with_node(world, *nodes):
    known = world.snapshot.cluster.node_by_name | {node.name: node for node in nodes}
    cluster = world.snapshot.cluster.model_copy(update={"nodes": tuple(known.values())})
    return replace(world, snapshot=world.snapshot.model_copy(update={"cluster": cluster}))


def _without(world, names):
    placements = tuple(each for each in world.target.placements if each.job not in names)
    return replace(world, target=replace(world.target, placements=placements))


def _quota(world, part):
    def raised(queue):
        if queue.name != part.subject:
            return queue
        if part.gpu_model:
            quota = queue.gpu_models[part.gpu_model].model_copy(update={"nominal": round(part.after * MILLI)})
            return queue.model_copy(update={"gpu_models": queue.gpu_models | {part.gpu_model: quota}})
        field = {"gpus": "quota", "cpus": "cpus", "memory": "memory"}[part.resource]
        unit = 1 if field == "memory" else MILLI
        quota = getattr(queue, field).model_copy(update={"nominal": round(part.after * unit)})
        return queue.model_copy(update={field: quota})

    queues = tuple(map(raised, world.snapshot.queues))
    return replace(world, snapshot=world.snapshot.model_copy(update={"queues": queues}))


def _gpu_model(world, part):
    models = world.snapshot.job_by_name[world.job].gpu_models
    return _with_job(world, gpu_models=models | {part.after: min(models.values())})


def _locality(world, part):
    locality = world.snapshot.job_by_name[world.job].locality
    level = Level(part.after) if part.after else None
    return _with_job(world, locality=locality.model_copy(update={"required": level}))


def _spread(world, part):
    spread = world.snapshot.job_by_name[world.job].spread
    return _with_job(world, spread=spread.model_copy(update={"most": part.after}))


def _selector(world, part):
    job = world.snapshot.job_by_name[world.job]
    selector = {key: value for key, value in job.node_selector.items() if f"{key}={value}" != part.before}
    affinity = tuple(match for match in job.affinity if format_match(match) != part.before)
    regions = () if part.before.startswith("region ") else job.regions
    return _with_job(world, node_selector=selector, affinity=affinity, regions=regions)


def _toleration(world, part):
    what, effect = part.after.rsplit(":", 1)
    key, _, value = what.partition("=")
    new = Toleration(key=key, value=value, effect=effect)
    return _with_job(world, tolerations=(*world.snapshot.job_by_name[world.job].tolerations, new))


def _replicas(world, part):
    gang = world.snapshot.job_by_name[world.job].gang
    return _with_job(
        world, gang=Gang(min=part.after, max=max(part.after, gang.maximum if gang.elastic else 0))
    )


def _request(field, factor):
    def asking(world, part):
        request = world.snapshot.job_by_name[world.job].request
        return _with_job(world, request=request.model_copy(update={field: round(part.after * factor)}))

    return asking


def _policy(world, part):
    if part.subject == "horizon.backfill.starving":
        horizon = world.policy.horizon
        backfill = horizon.backfill.model_copy(update={"starving": None})
        changed = horizon.model_copy(update={"backfill": backfill})
        return replace(world, policy=world.policy.model_copy(update={"horizon": changed}))
    knob = part.subject.removeprefix("mig.")
    mig = world.policy.mig.model_copy(update={knob: True})
    return replace(world, policy=world.policy.model_copy(update={"mig": mig}))


def _stop(world, part):
    """Stopped by the plan, or by hand: it waits then, and is held."""
    job = world.snapshot.job_by_name[part.subject]
    held = job.model_copy(update={"running": None, "held": True})
    by_hand = _without(_with_jobs(world, {part.subject: held}), {part.subject})
    return replace(_without(world, {part.subject}), otherwise=by_hand)


def _defer(world, part):
    """With all that would start together with it."""
    group = world.snapshot.job_by_name[part.subject].co_start
    return _without(
        world,
        {part.subject} | {each.name for each in world.snapshot.jobs if group and each.co_start == group},
    )


def _nodes(world, part):
    cluster = world.snapshot.cluster
    patterns = {pool.name: pool.template for pool in cluster.pools} | cluster.node_by_name
    new = patterns[part.subject].as_new()
    return _with_node(
        world,
        *(new.model_copy(update={"name": f"x{number}", "pool": None}) for number in range(part.after)),
    )


def _uncordon(world, part):
    node = world.snapshot.cluster.node_by_name[part.subject]
    return _with_node(world, node.model_copy(update={"cordoned": False}))


def _power(world, part):
    caps = tuple(
        cap.model_copy(update={"watts": part.after})
        if [cap.rack, cap.zone, cap.region] == [*reversed(part.subject.split("/")), "", ""][:3]
        else cap
        for cap in world.snapshot.cluster.rack_power
    )
    cluster = world.snapshot.cluster.model_copy(update={"rack_power": caps})
    return replace(world, snapshot=world.snapshot.model_copy(update={"cluster": cluster}))


def _wait(world, part):
    """The world after so many seconds: with the plan carried out, some jobs over, and later starts begun."""
    moment = world.snapshot.taken_at + timedelta(seconds=part.after)
    stays = ProjectedSchedule(world.snapshot, world.policy, world.target).stays
    over = {name for name, stay in stays.items() if stay.end <= part.after}
    there = {name: stay for name, stay in stays.items() if name not in over and stay.start <= part.after}
    there = {name: stay for name, stay in there.items() if name not in world._members()}
    jobs = [
        job.model_copy(update={"running": _running(job, there.get(job.name), world)})
        for job in world.snapshot.jobs
        if job.name not in over
    ]
    known = world.snapshot.job_by_name
    ended = tuple(
        FinishedJob(name=name, queue=known[name].queue, started_at=NOW, ended_at=NOW) for name in sorted(over)
    )
    update = {"jobs": tuple(jobs), "finished": (*world.snapshot.finished, *ended), "taken_at": moment}
    update["cluster"] = cluster_after(world.snapshot, world.target)
    placements = [Placement(job=name, replicas=stay.replicas) for name, stay in there.items()]
    return replace(
        world,
        snapshot=world.snapshot.model_copy(update=update),
        target=DesiredState(sorted_by_job(placements)),
    )


def _running(job, stay, world):
    if stay is None:
        return None
    started = job.running.started_at if job.running else world.snapshot.taken_at
    return Running(started_at=started, replicas=stay.replicas)


_CHANGES = {
    RemedyKind.RELEASE: lambda world, _: _with_job(world, held=False),
    RemedyKind.BEGIN: lambda world, _: _with_job(world, not_before=None),
    RemedyKind.QUOTA: _quota,
    RemedyKind.GPU_MODEL: _gpu_model,
    RemedyKind.LOCALITY: _locality,
    RemedyKind.SELECTOR: _selector,
    RemedyKind.TOLERATION: _toleration,
    RemedyKind.SPREAD: _spread,
    RemedyKind.REPLICAS: _replicas,
    RemedyKind.CPUS: _request("cpu_milli", MILLI),
    RemedyKind.MEMORY: _request("memory_mib", 1),
    RemedyKind.POLICY: _policy,
    RemedyKind.STOP: _stop,
    RemedyKind.DEFER: _defer,
    RemedyKind.NODE: _nodes,
    RemedyKind.UNCORDON: _uncordon,
    RemedyKind.POWER: _power,
    RemedyKind.WAIT: _wait,
}
