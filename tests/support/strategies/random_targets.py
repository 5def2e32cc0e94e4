"""
Seeded random targets for a problem: what might be planned, legal or not, as far as models have columns.

`random_target` does as it likes, often one GPU, node or quota too far. `legal_target` takes one step after
another and keeps those after which the verifier finds nothing wrong.
"""

from __future__ import annotations

from gpuplan.models.cluster import MigInstance
from gpuplan.models.eligibility.free_resources import charged_cpu_memory, free_resources_by_node
from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.problem.jobs import ClassRole, Incumbent
from gpuplan.models.units import MILLI, print_milli
from gpuplan.models.verifier.verify import verify_target


def judged(snapshot, policy, target):
    """The verifier's answer to a target."""
    return verify_target(snapshot, policy, target)


def nothing_changed(snapshot):
    """The target that leaves all as it is."""
    return DesiredState(sorted_by_job(snapshot.running_placements))


def sorted_by_job(placements):
    """Placements as a target has them."""
    return tuple(sorted(placements, key=lambda placement: placement.job))


def random_target(snapshot, problem, draw):
    """Any fates, places and nodes; what waits goes mostly where there is room, sometimes just anywhere."""
    world = _World(snapshot, problem, draw, careless=draw.choice((0.1, 0.4, 0.8)))
    added = tuple(
        node for option in problem.pools for node in option.nodes if draw.random() < draw.choice((0.2, 0.9))
    )
    placements = {each.job: each for each in snapshot.running_placements}
    fates = {}
    for incumbent in problem.incumbents:
        fates[incumbent.job] = world.fate(incumbent, placements[incumbent.job])
    placements = _with(placements, fates)
    for incumbent in problem.incumbents:
        placements = _with(placements, world.comeback(incumbent, fates[incumbent.job], placements))
    for job_class, name in world.starts():
        if draw.random() < 0.6 and (placement := world.start(job_class, name, placements.values())):
            placements[name] = placement
    chosen = sorted_by_job(placements.values())
    started = [each for each in chosen if snapshot.job_by_name[each.job].running is None]
    if started and draw.random() < 0.03:
        chosen = sorted_by_job((*chosen, draw.choice(started)))
    closable = _closable(snapshot, problem, chosen)
    removed = tuple(sorted(name for name in closable if draw.random() < 0.5))
    return DesiredState(chosen, added, removed)


def legal_target(snapshot, policy, problem, draw):
    """A random walk of changes that break no rule."""
    world = _World(snapshot, problem, draw, careless=0.0)
    target = nothing_changed(snapshot)
    optional = [node for option in problem.pools for node in option.nodes]
    if optional and draw.random() < 0.6:
        target = DesiredState(target.placements, tuple(optional[: draw.randint(1, len(optional))]))
    steps = [*problem.incumbents, *world.starts()]
    draw.shuffle(steps)
    steps += [each for each in problem.incumbents if each.move is not None or each.grow is not None]
    for step in steps:
        placements = {each.job: each for each in target.placements}
        if not isinstance(step, Incumbent):
            placement = world.start(*step, placements.values())
            changed = {step[1]: placement} if placement else {}
        else:
            fate = world.fate(step, snapshot.job_by_name[step.job].placement)
            rest = _with(placements, {step.job: fate})
            changed = {step.job: fate} | world.comeback(step, fate, rest)
        if draw.random() < 0.8:
            placements = sorted_by_job(_with(placements, changed).values())
            target = _if_legal(snapshot, policy, target, DesiredState(placements, target.added))
    for name in _closable(snapshot, problem, target.placements):
        removed = tuple(sorted((*target.removed, name)))
        if draw.random() < 0.7:
            target = _if_legal(
                snapshot, policy, target, DesiredState(target.placements, target.added, removed)
            )
    return target


def _closable(snapshot, problem, placements):
    """Nodes that may be removed; no job is stopped or shrunk to save the price of one."""
    after = {each.job: each.replicas for each in placements}
    preempted = {
        replica.node
        for each in snapshot.running_placements
        if len(after.get(each.job, ())) < len(each.replicas)
        for replica in each.replicas
    }
    closable = [problem.nodes[node].name for option in problem.pools for node in option.closable]
    return [name for name in closable if name not in preempted]


def _if_legal(snapshot, policy, before, after):
    return before if judged(snapshot, policy, after).violations else after


def _with(placements, changed):
    """Placements with some of them replaced, or gone where None replaces them."""
    return {job: each for job, each in (placements | changed).items() if each is not None}


class _World:
    def __init__(self, snapshot, problem, draw, *, careless):
        self.snapshot, self.problem, self.draw, self.careless = snapshot, problem, draw, careless
        self.known = {node.name: node for option in problem.pools for node in option.nodes}
        self.known |= snapshot.cluster.node_by_name

    def starts(self):
        """(class, job) of every job that waits and may start now."""
        return [
            (job_class, name)
            for job_class in self.problem.classes
            if job_class.role is ClassRole.START and job_class.startable
            for name in job_class.jobs
        ]

    def fate(self, incumbent, placement):
        """What is left of a running job: the same, a part, or None for a stop or a move."""
        draw = self.draw
        count = len(placement.replicas)
        choice = draw.random()
        if choice < 0.3 and (incumbent.stop_points is not None or incumbent.move is not None):
            return None
        fewest = 1 if draw.random() < self.careless / 2 else incumbent.min_replicas
        if choice < 0.5 and incumbent.shrinkable:
            kept = draw.sample(placement.replicas, draw.randint(fewest, count - 1))
            return placement.model_copy(update={"replicas": tuple(kept)})
        return placement

    def comeback(self, incumbent, fate, placements):
        """A job that left is moved, or one that stayed whole grows; {} if neither."""
        draw, problem = self.draw, self.problem
        if fate is None:
            has_to = incumbent.stop_points is None
            if incumbent.move is None or (draw.random() < 0.4 and not has_to):
                return {}
            placed = self._placement(problem.classes[incumbent.move], incumbent.job, placements.values())
            if placed is None and has_to:
                placed = self.snapshot.job_by_name[incumbent.job].placement
            return {incumbent.job: placed} if placed else {}
        whole = fate is not None and len(fate.replicas) == len(incumbent.holds)
        if whole and incumbent.grow is not None and draw.random() < 0.5:
            others = [each for each in placements.values() if each.job != incumbent.job]
            new = self._placement(problem.classes[incumbent.grow], incumbent.job, [*others, fate])
            if new:
                return {incumbent.job: fate.model_copy(update={"replicas": (*fate.replicas, *new.replicas)})}
        return {}

    def start(self, job_class, name, placements):
        """A waiting job on some places; None if there are none."""
        return self._placement(job_class, name, placements)

    def _placement(self, job_class, name, placements):
        draw = self.draw
        count = draw.randint(job_class.minimum, job_class.maximum)
        if job_class.role is ClassRole.START and draw.random() < self.careless / 4:
            count = max(1, count + draw.choice((-1, 1)))
        option = draw.choice([option for option in job_class.options if option.groups])
        nodes = [node for group in option.groups for node in self.problem.groups[group].nodes]
        if draw.random() < self.careless / 4:
            nodes = sorted(
                {
                    n
                    for each in job_class.options
                    for group in each.groups
                    for n in self.problem.groups[group].nodes
                }
            )
        nodes = [self.known[self.problem.nodes[node].name] for node in nodes]
        free = free_resources_by_node(self.known.values(), placements, snapshot=self.snapshot)
        job = self.snapshot.job_by_name[name]
        # Jobs that are to be close together look at few nodes.
        few = draw.sample(nodes, draw.randint(1, len(nodes)))
        replicas = []
        while len(replicas) < count:
            anywhere = draw.random() < self.careless
            replica = self._replica(job, draw.choice(nodes if anywhere else few), free, anywhere=anywhere)
            if replica is None:
                fitting = [self._replica(job, node, free, anywhere=False) for node in nodes]
                fitting = [each for each in fitting if each]
                if not fitting:
                    return None
                replica = draw.choice(fitting)
            charge = charged_cpu_memory(replica, job.qos, self.snapshot.cluster)
            free[replica.node].take(replica, charge)
            replicas.append(replica)
        if draw.random() < self.careless / 8:
            replicas[0] = replicas[0].model_copy(update={"gpus": replicas[0].gpus[1:]})
        return Placement(job=name, replicas=tuple(replicas))

    def _replica(self, job, node, free, *, anywhere):
        """What a job asks for on a node, on parts of GPUs that are free; None if it does not fit."""
        held = self._held(job.request, node, free[node.name], anywhere=anywhere)
        if held is None:
            return None
        replica = Replica(
            node=node.name,
            gpus=tuple(sorted(held, key=lambda part: (part.index, getattr(part, "start", 0)))),
            cpus=print_milli(job.request.cpu_milli),
            memory_mib=job.request.memory_mib,
            disk_mib=job.request.disk_mib,
            resources=job.request.resources,
        )
        # A GPU switched to MIG mode is none that holds shares.
        fits = free[node.name].holds(replica, charged_cpu_memory(replica, job.qos, self.snapshot.cluster))
        return replica if anywhere or fits else None

    def _held(self, request, node, room, *, anywhere):
        draw = self.draw
        if request.gpus or request.gpu_milli:
            milli, count = (MILLI, request.gpus) if request.gpus else (request.gpu_milli, 1)
            able = [
                index
                for index, gpu in (node.gpus.by_index.items() if node.gpus else ())
                if gpu.healthy and (anywhere or room.gpu_milli[index] >= milli)
            ]
            if len(able) < count:
                return None
            return [GpuShare(index=index, milli=milli) for index in draw.sample(able, count)]
        held = []
        for profile, count in sorted(request.mig.items()):
            for _ in range(count):
                able = [part for part in self._instances(node, profile, room, anywhere) if part not in held]
                if not able:
                    return None
                held.append(draw.choice(able))
        return held

    def _instances(self, node, profile, room, anywhere):
        """MIG instances of a profile: present ones, ones that could be cut, or, if anywhere, any."""
        geometry = mig_geometry(node.gpu_model)
        starts = geometry.profiles[profile].starts if geometry else ()
        present, possible = [], []
        for index, gpu in node.gpus.by_index.items():
            if not gpu.healthy:
                continue
            on = gpu.mig is not None
            for start in range(8) if anywhere else starts:
                part = MigSlice(index=index, profile=profile, start=start)
                if on and MigInstance(profile=profile, start=start) in gpu.mig:
                    present.append(part)
                if on or room.gpu_milli[index] == MILLI or anywhere:
                    possible.append(part)
        return present if present and self.draw.random() < 0.5 else possible
