"""What a rollback must lead to: what it did not tell to stay is as before the plan, the rest as it was."""

from __future__ import annotations

from gpuplan.models.placement import same_holdings
from gpuplan.models.plan.actions import Release, Repartition, ScaleDown, ScaleUp, changes_of
from gpuplan.models.plan.rollback import StaysCode
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.plan_file.integrity import contradictions


def assert_legal(back):
    """The verifier and the check of plan files have nothing against a rollback."""
    assert not verify_target(back.snapshot, back.policy, back.target).violations
    assert not list(contradictions(back))


def assert_undone(plan, back, *, before, between, after):
    """
    Compare the cluster before a plan, after it (or a part of it), and after its rollback.

    A job or node that the plan did not change is as it was between. Of those that it changed, what the
    rollback does not tell to stay is as before.
    """
    told = {each.subject for each in back.rollback.stays if each.code is not StaysCode.WORK_LOST}
    changes = changes_of(plan.actions)
    touched = {f"job {each.job}" for each in changes if hasattr(each, "job")}
    touched |= {f"node {each.node}" for each in changes if hasattr(each, "node")}
    scaled = {f"node {each.node}" for each in changes if isinstance(each, ScaleUp | ScaleDown)}
    relaid = {f"node {each.node} gpu {each.gpu}" for each in changes if isinstance(each, Repartition)}
    old, mid, new = (_state(world) for world in (before, between, after))
    for subject in sorted(old.keys() | mid.keys() | new.keys()):
        if subject not in touched | relaid and subject.partition(" gpu ")[0] not in scaled:
            assert _same(new.get(subject), mid.get(subject)), f"{subject} was not changed by the plan"
        elif told.isdisjoint({subject, subject.partition(" gpu ")[0]}):
            assert _same(new.get(subject), old.get(subject)), f"{subject} differs untold"


def released(back):
    """True if a rollback had to release lost places, as every plan."""
    return any(isinstance(each, Release) for each in back.actions)


def _state(world):
    """Places of jobs, nodes and MIG layouts by subject; a job or node that is not there is missing."""
    found = {f"job {job.name}": job.running.replicas if job.running else () for job in world.jobs}
    for node in world.cluster.nodes:
        found[f"node {node.name}"] = node.cordoned
        for gpu in node.gpus.by_index.values() if node.gpus else ():
            found[f"node {node.name} gpu {gpu.index}"] = None if gpu.mig is None else frozenset(gpu.mig)
    return found


def _same(one, other):
    if isinstance(one, tuple) and isinstance(other, tuple):
        return same_holdings(one, other)
    return one == other
