"""Reasons of waiting jobs, held against what the verifier says of every place."""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpuplan.models.eligibility.free_resources import FreeResources, free_resources_by_node
from gpuplan.models.eligibility.node_eligibility import ineligibility
from gpuplan.models.placement import GpuShare, MigSlice, Placement, Replica
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.plan.violation import Rule
from gpuplan.models.units import print_milli
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.waiting.diagnose import waiting_reasons
from tests.support.builders.build import (
    by_value,
)
from tests.support.harness.waiting_reasons import (
    MAY_DO_NOTHING,
    OF_ROOM,
)
from tests.support.seeds import examples
from tests.support.strategies.placement_strategies import legal_placements
from tests.support.strategies.replica_strategies import replica_for
from tests.support.strategies.snapshot_strategies import snapshots


@pytest.mark.slow
@settings(max_examples=examples(120))
@given(st.data())
def test_reasons_agree_with_the_verifier(data):
    world = data.draw(snapshots(mig=True, locality=True))
    placements = tuple(data.draw(legal_placements(world)))

    reasons = waiting_reasons(world, MAY_DO_NOTHING, DesiredState(placements))

    placed = {placement.job for placement in placements}
    assert reasons.keys() == world.job_by_name.keys() - placed
    for name, reason in reasons.items():
        event(reason.code)
        assert reason.code in _expected(world, placements, world.job_by_name[name]), (name, reason)


def _expected(world, placements, waiting):
    """The codes that are true of a job, found by trying every node and asking the verifier about quotas."""
    if waiting.held:
        return {ReasonCode.HELD}
    nodes = [node for node in world.cluster.nodes if ineligibility(waiting, node) is None]
    if not any(_holds_one(node, waiting) for node in nodes):
        return {ReasonCode.NO_MATCHING_NODE}
    # One node of each GPU model stands for all where only quotas are judged.
    ever = [node for node in nodes if not _breaks_quota(world, (), waiting, node)]
    if not ever:
        return {ReasonCode.EXCEEDS_MAX_QUOTA}
    now = [node for node in nodes if not _breaks_quota(world, placements, waiting, node)]
    if not now:
        return {ReasonCode.WAITING_FOR_QUOTA}
    return set(OF_ROOM)


def _holds_one(node, waiting):
    """True if the empty node has room for one replica, GPUs enough included."""
    empty = FreeResources.of(node)
    one = replica_for(waiting, node, empty)
    return _is_whole(one, waiting, node) and empty.holds(one)


def _is_whole(one, waiting, node):
    """True if a replica has all GPUs and instances its job asks for, and these exist."""
    wanted = waiting.request.gpus + bool(waiting.request.gpu_milli) + sum(waiting.request.mig.values())
    slices = [held for held in one.gpus if not isinstance(held, GpuShare)]
    return len(one.gpus) == wanted and all(
        any(
            (there.profile, there.start) == (held.profile, held.start)
            for there in node.gpus.by_index[held.index].mig or ()
        )
        for held in slices
    )


def _breaks_quota(world, placements, waiting, node):
    """What the verifier says of queues if the job ran at its smallest on one node, room or not."""
    stopped = {job.name for job in world.jobs} - {placement.job for placement in placements} - {waiting.name}
    world = world.model_copy(
        update={
            "jobs": tuple(
                job.model_copy(update={"running": None}) if job.name in stopped else job for job in world.jobs
            )
        }
    )
    shares = waiting.request.gpus * [1000] or [waiting.request.gpu_milli]
    held = (
        *(GpuShare(index=index, milli=milli) for index, milli in enumerate(shares) if milli),
        *(
            MigSlice(index=0, profile=profile, start=0)
            for profile, count in waiting.request.mig.items()
            for _ in range(count)
        ),
    )
    cpus = print_milli(waiting.request.cpu_milli)
    one = Replica(node=node.name, gpus=held, cpus=cpus, memory_mib=waiting.request.memory_mib)
    added = Placement(job=waiting.name, replicas=(one,) * waiting.gang.minimum)
    violations = verify(world, by_value(), (*placements, added)).violations
    return any(violation.rule is Rule.QUOTA for violation in violations)


@pytest.mark.slow
@settings(max_examples=examples(120))
@given(st.data())
def test_jobs_said_to_fit_do_fit_and_the_others_do_not(data):
    world = data.draw(snapshots(mig=True, locality=True))
    placements = tuple(data.draw(legal_placements(world)))

    for name, reason in waiting_reasons(world, MAY_DO_NOTHING, DesiredState(placements)).items():
        if reason.code not in OF_ROOM:
            continue
        said_to_fit = reason.code is ReasonCode.NOT_CHOSEN and not reason.numbers
        event(f"fits: {said_to_fit}")
        found = _place(world, placements, world.job_by_name[name])
        assert (found is not None) == said_to_fit, reason


def _place(world, placements, waiting):
    """The job at its smallest, on the first choice of nodes that the verifier has nothing against."""
    suitable = [node for node in world.cluster.nodes if ineligibility(waiting, node) is None]
    for nodes in combinations_with_replacement(suitable, waiting.gang.minimum):
        free = free_resources_by_node(nodes, placements)
        replicas = []
        for place in nodes:
            one = replica_for(waiting, place, free[place.name])
            if _is_whole(one, waiting, place) and free[place.name].holds(one):
                free[place.name].take(one)
                replicas.append(one)
        if len(replicas) == waiting.gang.minimum:
            found = Placement(job=waiting.name, replicas=tuple(replicas))
            if not verify(world, by_value(), (*placements, found), by_priority=False).violations:
                return found
    return None
