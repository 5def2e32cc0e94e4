"""Which job may start where in which later slot, and what that is worth: problem and verifier agree."""

from __future__ import annotations

import pytest

from gpuplan.models.mig import mig_geometry
from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.plan.violation import Rule
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders.problem_builders import quotas_allow, replica_on
from tests.support.strategies import instances, time_strategies

SEEDS = range(40)
MADE = (instances.everything, instances.everything_mixed)

OF_TIME = {Rule.SELECTION, Rule.HORIZON, Rule.WINDOWS, Rule.DEPENDENCIES, Rule.DEADLINES}
EARNED = ("completion", "deadlines", "tariffs")


def suits(job, node):
    """True if the node has GPUs that a replica could be on at all."""
    if not job.request.needs_gpu:
        return True
    geometry = mig_geometry(node.gpu_model) if node.gpu_model else None
    return node.gpu_count >= 1 and set(job.request.mig) <= set(geometry.profiles if geometry else ())


def offered(problem, one):
    """Points of a start by slot and name of the node."""
    found = {}
    for option in one.options if one else ():
        for slot in range(1, problem.slots):
            for index in (
                node for group in option.later_groups[slot] for node in problem.groups[group].nodes
            ):
                found[slot, problem.nodes[index].name] = option.later[slot]
    return found


def legal_starts(instance, job, beside, *, promised):
    """What each later start of a job is worth that no rule of time forbids, by slot and node."""
    snapshot, policy = instance.snapshot, instance.policy
    before = verify(snapshot, policy, beside)
    found = {}
    for node in snapshot.cluster.nodes:
        if not suits(job, node) or not quotas_allow(snapshot, job, node.gpu_model):
            continue
        for slot in range(1, policy.horizon.slots):
            places = (replica_on(job, node),) * job.gang.minimum
            planned = (LaterStart(job.name, slot, places, promised=promised),)
            after = verify(snapshot, policy, beside, planned=planned)
            if not {each.rule for each in after.violations} & OF_TIME:
                found[slot, node.name] = sum(
                    after.terms.get(term, 0) - before.terms.get(term, 0) for term in EARNED
                )
    return found


def by_itself(snapshot, job):
    """True if a job waits for nothing that is up to the plan."""
    waiting = {each.name for each in snapshot.jobs if not each.running}
    return not job.co_start and not any(each.job in waiting for each in job.depends_on)


@pytest.mark.slow
@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_may_start_just_where_and_when_no_rule_of_time_keeps_it_away(make, seed):
    instance = time_strategies.instance(seed, make=make, slots=4)
    snapshot, policy = instance.snapshot, instance.policy
    problem = build_problem(snapshot, policy)
    classes = {name: one for one in problem.classes if one.role is ClassRole.START for name in one.jobs}
    for job in snapshot.jobs:
        if job.running or job.held or not by_itself(snapshot, job):
            continue
        allowed = legal_starts(instance, job, snapshot.running_placements, promised=False)
        assert offered(problem, classes.get(job.name)) == allowed, job.name


@pytest.mark.slow
@pytest.mark.parametrize("make", MADE)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_stopped_job_may_resume_just_where_and_when_no_rule_of_time_keeps_it_away(make, seed):
    instance = time_strategies.instance(seed, make=make, slots=4)
    snapshot, policy = instance.snapshot, instance.policy
    problem = build_problem(snapshot, policy)
    for incumbent in problem.incumbents:
        if incumbent.stop_points is None:
            continue
        job = snapshot.job_by_name[incumbent.job]
        others = tuple(each for each in snapshot.running_placements if each.job != job.name)
        allowed = legal_starts(instance, job, others, promised=True)
        resumes = None if incumbent.resume is None else problem.classes[incumbent.resume]
        assert offered(problem, resumes) == allowed, job.name
