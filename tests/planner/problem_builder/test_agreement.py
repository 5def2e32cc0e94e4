"""Which job may go where, and what a step is worth: the problem and the verifier agree."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gpuplan.models.mig import mig_geometry
from gpuplan.models.placement import GpuShare, Placement, holding
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.plan.violation import Rule
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.units import MILLI
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.problem_builder.resource_vectors import POWER
from tests.support.builders.problem_builders import quotas_allow, replica_on
from tests.support.seeds import examples
from tests.support.strategies import instances, time_strategies
from tests.support.strategies.random_targets import judged, legal_target, nothing_changed, sorted_by_job

SEEDS = range(examples(40))
MADE = (instances.everything, instances.everything_mixed, instances.cpu_limited(instances.everything))
WITH_TIME = (*MADE, time_strategies.instance)

ABSOLUTE = ("guarantee", "nominal", "fragmentation")
"""Terms that are not of one step alone."""


def points(verification):
    return verification.objective - sum(verification.terms.get(term, 0) for term in ABSOLUTE)


def broken(verification):
    """Rules that are broken; promises to others are the solver's business."""
    return {each.rule for each in verification.violations} - {Rule.PROMISES}


def with_placement(snapshot, job, replicas, **nodes):
    """Everything as it is, but for one job."""
    others = [each for each in snapshot.running_placements if each.job != job]
    placed = [Placement(job=job, replicas=tuple(replicas))] if replicas else []
    return DesiredState(sorted_by_job([*others, *placed]), **nodes)


def refused(snapshot, policy, job, node, added):
    """True if the filters, or the GPU model, keep a new replica of the job from a node."""
    placed = snapshot.job_by_name[job.name].placement
    count = len(placed.replicas) if placed else job.gang.minimum
    target = with_placement(snapshot, job.name, [replica_on(job, node)] * count, added=added)
    found = judged(snapshot, policy, target).violations
    mine = [
        each for each in found if each.rule is Rule.SELECTION and f"job {job.name} on node" in each.subject
    ]
    geometry = mig_geometry(node.gpu_model) if node.gpu_model else None
    offered = geometry.profiles if geometry else {}
    return (
        bool(mine)
        or any(profile not in offered for profile in job.request.mig)
        or (job.request.needs_gpu and node.gpus is None)
    )


@pytest.mark.slow
@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_may_go_just_where_no_filter_keeps_it_away(make, seed):
    instance = make(seed)
    snapshot, policy = instance.snapshot, instance.policy
    problem = build_problem(snapshot, policy)
    added = {node.name: node for option in problem.pools for node in option.nodes}
    allowed = {}
    for one in problem.classes:
        groups = [group for option in one.options for group in option.groups]
        names = {problem.nodes[index].name for group in groups for index in problem.groups[group].nodes}
        if one.role is not ClassRole.GROW:
            allowed |= dict.fromkeys(one.jobs, names)

    nodes = [*snapshot.cluster.nodes, *added.values()]
    for job in snapshot.jobs:
        if not job.held and (job.running is None or job.name in allowed):
            # To move to where it runs is no move.
            here = {replica.node for replica in job.running.replicas} if job.running else set()
            welcome = {
                node.name
                for node in nodes
                if node.name not in here
                and (job.running or quotas_allow(snapshot, job, node.gpu_model))
                and not refused(snapshot, policy, job, node, (node,) if node.name in added else ())
            }
            assert allowed.get(job.name, set()) - here == welcome, job.name


@pytest.mark.slow
@pytest.mark.parametrize("make", WITH_TIME)
@pytest.mark.parametrize("seed", SEEDS)
def test_stopping_and_shrinking_are_legal_and_worth_what_the_question_says(make, seed):
    instance = make(seed)
    snapshot, policy = instance.snapshot, instance.policy
    for incumbent in build_problem(snapshot, policy).incumbents:
        replicas = snapshot.job_by_name[incumbent.job].running.replicas
        assert len(incumbent.holds) == len(replicas)
        if incumbent.stop_points is not None:
            found = judged(snapshot, policy, with_placement(snapshot, incumbent.job, ()))

            assert not broken(found)
            assert points(found) == incumbent.stop_points + incumbent.leave_reward
        for given_up in range(1, len(replicas) - incumbent.min_replicas + 1):
            found = judged(snapshot, policy, with_placement(snapshot, incumbent.job, replicas[given_up:]))

            assert not broken(found)
            drained = found.terms.get("drain", 0)
            assert points(found) - drained == incumbent.resize_points + sum(
                incumbent.shrink_points[:given_up]
            )


@pytest.mark.slow
@pytest.mark.parametrize("make", WITH_TIME)
@pytest.mark.parametrize("seed", SEEDS)
def test_giving_back_and_adding_nodes_is_legal_and_worth_what_the_question_says(make, seed):
    instance = make(seed)
    snapshot, policy = instance.snapshot, instance.policy
    problem = build_problem(snapshot, policy)
    idle = nothing_changed(snapshot)
    used = {replica.node for placement in idle.placements for replica in placement.replicas}
    for option in problem.pools:
        empty = [problem.nodes[index] for index in option.closable if problem.nodes[index].name not in used]
        empty = empty[: option.most_closed]
        names = tuple(sorted(node.name for node in empty))
        found = judged(snapshot, policy, DesiredState(idle.placements, removed=names))
        assert not broken(found)
        assert points(found) == sum(node.closing_points for node in empty)

        found = judged(snapshot, policy, DesiredState(idle.placements, added=option.nodes))
        assert not broken(found)
        assert points(found) == -option.opening_points * len(option.nodes)


def worth(problem, snapshot, target):
    """What the question says of starts, moves and growth, apart from meetings, MIG and domains."""
    index = {node.name: number for number, node in enumerate(problem.nodes)}
    group_of = {node: number for number, group in enumerate(problem.groups) for node in group.nodes}
    by_role = {(name, one.role): one for one in problem.classes for name in one.jobs}
    incumbents = {one.job: one for one in problem.incumbents}
    total = 0
    for placement in target.placements:
        before = snapshot.job_by_name[placement.job].placement
        old = list(before.replicas) if before else []
        new = list(placement.replicas)
        if Counter(map(holding, new)) == Counter(map(holding, old)):
            continue
        role = ClassRole.MOVE if old else ClassRole.START
        if len(new) > len(old) > 0:
            role = ClassRole.GROW
            for replica in old:
                new.remove(replica)
        one = by_role[placement.job, role]
        groups = [group_of[index[replica.node]] for replica in new]
        option = next(option for option in one.options if groups[0] in option.groups)
        prices = dict(one.node_points)
        total += one.points(option, len(new)) + sum(prices.get(group, 0) for group in groups)
        if role is ClassRole.MOVE:
            total += incumbents[placement.job].leave_points + incumbents[placement.job].leave_reward
    return total


SEPARATE = ("interference", "locality", "repartition", "nodes")


@pytest.mark.slow
@pytest.mark.parametrize("make", WITH_TIME)
@pytest.mark.parametrize("seed", SEEDS)
def test_starts_moves_and_growth_are_worth_what_the_question_says(make, seed):
    instance = make(seed)
    snapshot, policy = instance.snapshot, instance.policy
    problem = build_problem(snapshot, policy)
    walked = legal_target(snapshot, policy, problem, random.Random(seed))
    for placement in walked.placements:
        before = snapshot.job_by_name[placement.job].placement
        if before is not None and len(placement.replicas) < len(before.replicas):
            continue
        target = with_placement(snapshot, placement.job, placement.replicas, added=walked.added)

        found = judged(snapshot, policy, target)

        expected = points(found) - sum(found.terms.get(term, 0) for term in SEPARATE)
        assert worth(problem, snapshot, target) == expected, placement.job


def at_one_place(instance):
    """Every class that starts with one replica, on every node it may use, with what the verifier finds."""
    snapshot, policy = instance.snapshot, instance.policy
    problem = build_problem(snapshot, policy)
    optional = {node.name: node for option in problem.pools for node in option.nodes}
    nodes = snapshot.cluster.node_by_name | optional
    for one in problem.classes:
        groups = [group for option in one.options for group in option.groups]
        for index in (index for group in groups for index in problem.groups[group].nodes):
            if one.role is ClassRole.START and one.minimum == 1:
                name = problem.nodes[index].name
                added = (optional[name],) if name in optional else ()
                replica = replica_on(snapshot.job_by_name[one.jobs[0]], nodes[name])
                target = with_placement(snapshot, one.jobs[0], [replica], added=added)
                rules = {each.rule for each in judged(snapshot, policy, target).violations}
                yield problem, one, index, rules


@pytest.mark.slow
@pytest.mark.parametrize("make", WITH_TIME)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_has_room_just_where_its_amounts_are_free(make, seed):
    for problem, one, index, rules in at_one_place(make(seed)):
        amounts = zip(problem.resources, one.shape.amounts, problem.nodes[index].amounts, strict=True)
        short = {resource for resource, amount, left in amounts if amount > left}
        hot = any(
            one.shape.quota_milli * cap.watts[cap.nodes.index(index)] > cap.left
            for cap in problem.power_caps
            if index in cap.nodes
        )
        overfull = bool(rules & {Rule.GPU_CAPACITY, Rule.FRACTIONAL_GPU, Rule.MIG, Rule.REQUEST})
        if POWER in short or overfull:
            # Caps that all GPUs in use together would keep are left out.
            assert overfull or Rule.POWER in rules
        else:
            assert hot == (Rule.POWER in rules)
        assert bool(short - {POWER}) == (Rule.CPU_MEMORY in rules)


@pytest.mark.slow
@pytest.mark.parametrize("make", WITH_TIME)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_replica_is_kept_away_only_by_jobs_in_its_domain(make, seed):
    for problem, one, index, rules in at_one_place(make(seed)):
        met = False
        for standing in problem.standing:
            tags = [each for each in one.avoids if each[0] in standing.carries]
            tags += [each for each in standing.avoids if each[0] in one.carries]
            for _, level in tags:
                domain = problem.domain_of(level)
                met |= domain[index] in {domain[node] for node in standing.nodes}
        assert met == (Rule.ANTI_AFFINITY in rules)


def shares_a_gpu(snapshot, name, placed):
    """True if a placement takes of a GPU that a running job holds as a whole."""
    held = {
        (each.node, share.index)
        for each in snapshot.job_by_name[name].running.replicas
        for share in each.gpus
        if isinstance(share, GpuShare) and share.milli == MILLI
    }
    return any((each.node, index) in held for each in placed.replicas for index in each.shared_gpus)


@pytest.mark.slow
@pytest.mark.parametrize("make", WITH_TIME)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_may_follow_just_those_of_its_rank_and_below(make, seed):
    instance = make(seed)
    snapshot, policy = instance.snapshot, instance.policy
    problem = build_problem(snapshot, policy)
    for incumbent in problem.incumbents:
        if incumbent.stop_points is None:
            continue
        for index in {hold.node for hold in incumbent.holds if hold.node is not None}:
            node = snapshot.cluster.node_by_name[problem.nodes[index].name]
            for one in problem.classes:
                if one.role is ClassRole.START:
                    job = snapshot.job_by_name[one.jobs[0]]
                    placed = Placement(job=job.name, replicas=(replica_on(job, node),))
                    others = [each for each in snapshot.running_placements if each.job != incumbent.job]
                    found = judged(snapshot, policy, DesiredState(sorted_by_job([*others, placed])))
                    kept_out = any(each.rule is Rule.PREEMPTION for each in found.violations)
                    outranked = one.rank < incumbent.rank and one.claim not in incumbent.claims
                    # What was free beside the victim is for any job.
                    assert kept_out <= outranked
                    assert kept_out or not (outranked and shares_a_gpu(snapshot, incumbent.job, placed))


@pytest.mark.slow
def test_the_instances_have_something_of_everything_in_them():
    problems = [build_problem(one.snapshot, one.policy) for make in MADE for one in map(make, range(40))]
    incumbents = [one for problem in problems for one in problem.incumbents]
    classes = [one for problem in problems for one in problem.classes]

    assert sum(one.stop_points is not None for one in incumbents) > 40
    assert sum(one.shrinkable for one in incumbents) > 2
    assert sum(one.leave_reward > 0 for one in incumbents) > 5
    assert sum(one.rank > 0 for one in incumbents) > 20
    assert sum(one.role is ClassRole.MOVE for one in classes) > 20
    assert sum(one.role is ClassRole.GROW for one in classes) > 5
    assert sum(bool(one.node_points) for one in classes) > 20
    assert sum(bool(one.asked) for one in classes) > 20
    assert sum(bool(problem.standing) for problem in problems) > 5
    assert sum(bool(problem.pools) for problem in problems) > 5
    assert sum(bool(problem.power_caps) for problem in problems) > 5
