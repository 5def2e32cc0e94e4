"""The question of an epoch, posed with what is known from the last one, is what it would be without."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.cluster import Gpu
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.problem_builder import build_problem
from gpuplan.planner.warm_start import reuse_equal_nouns
from tests.support.builders import build
from tests.support.seeds import examples
from tests.support.strategies import instances, time_strategies

WORLDS = (instances.everything, instances.everything_mixed, time_strategies.instance)


def without_a_job(chance, snapshot):
    kept = chance.sample(snapshot.jobs, len(snapshot.jobs) - 1) if snapshot.jobs else ()
    return snapshot.model_copy(update={"jobs": tuple(kept)})


def with_a_node_changed(chance, snapshot):
    change = chance.choice([{"drain": True}, {"cordoned": True}, {"ready": False}, {"labels": {"new": "y"}}])
    return with_nodes(snapshot, chance.choice(snapshot.cluster.nodes).name, change)


def with_a_sick_gpu(chance, snapshot):
    nodes = [node for node in snapshot.cluster.nodes if node.gpus and not node.gpus.details]
    if not nodes:
        return snapshot
    node = chance.choice(nodes)
    sick = Gpu(index=chance.randrange(node.gpus.count), healthy=False)
    return with_nodes(snapshot, node.name, {"gpus": node.gpus.model_copy(update={"details": (sick,)})})


def without_a_node(chance, snapshot):
    gone = chance.choice(snapshot.cluster.nodes)
    nodes = tuple(node for node in snapshot.cluster.nodes if node is not gone)
    if not nodes or any(gone.name in job.placement.nodes for job in snapshot.jobs if job.placement):
        return snapshot
    return snapshot.model_copy(update={"cluster": snapshot.cluster.model_copy(update={"nodes": nodes})})


def with_a_job_elsewhere(chance, snapshot):
    """One running job has gone to other GPUs, or to another node, under the same name."""
    running = [job for job in snapshot.jobs if job.running]
    if not running:
        return snapshot
    moved = chance.choice(running)
    names = [node.name for node in snapshot.cluster.nodes]
    # GPU 0 is anywhere; an instance stays, or it would be damage, which is told before anything is posed.
    fixed = any(isinstance(held, MigSlice) for each in moved.running.replicas for held in each.gpus)
    replicas = [
        replica.model_copy(
            update={
                "node": replica.node if fixed else chance.choice([replica.node, *names]),
                "gpus": tuple(
                    held.model_copy(update={"index": 0}) if isinstance(held, GpuShare) else held
                    for held in replica.gpus
                )[:1],
            }
        )
        for replica in moved.running.replicas
    ]
    running = moved.running.model_copy(update={"replicas": tuple(replicas)})
    jobs = tuple(
        job.model_copy(update={"running": running}) if job is moved else job for job in snapshot.jobs
    )
    return snapshot.model_copy(update={"jobs": jobs})


def as_it_is(_, snapshot):
    return snapshot


CHANGES = (
    as_it_is,
    without_a_job,
    with_a_node_changed,
    with_a_sick_gpu,
    without_a_node,
    with_a_job_elsewhere,
)


def with_nodes(snapshot, name, change):
    nodes = tuple(
        node.model_copy(update=change) if node.name == name else node for node in snapshot.cluster.nodes
    )
    return snapshot.model_copy(update={"cluster": snapshot.cluster.model_copy(update={"nodes": nodes})})


def read_anew(snapshot):
    return Snapshot.model_validate(snapshot.document())


@pytest.mark.slow
@pytest.mark.parametrize("make", WORLDS)
@given(seed=st.integers(0, 200), changes=st.lists(st.sampled_from(CHANGES), min_size=1, max_size=3))
@settings(max_examples=examples(60))
def test_a_question_edited_is_the_question_posed_anew(make, seed, changes):
    instance, chance = make(seed), random.Random(seed)
    last = instance.snapshot.canonical()
    cache = EpochCache()
    build_problem(last, instance.policy, cache)
    for change in changes:
        later = last.model_copy(update={"taken_at": last.taken_at + timedelta(minutes=7)})
        live = read_anew(change(chance, later))
        known = reuse_equal_nouns(live, last)
        assert build_problem(known, instance.policy, cache) == build_problem(read_anew(live), instance.policy)
        last = known


def test_what_is_known_of_running_jobs_is_taken_over():
    running = build.job("a", gpus=2, at=[build.replica("n0", gpus=(0, 1))])
    last = build.snapshot(jobs=[running, build.job("b", gpus=8, priority=1)]).canonical()
    cache = EpochCache()
    before = build_problem(last, Policy(), cache).incumbents
    known = reuse_equal_nouns(read_anew(last), last)

    (after,) = build_problem(known, Policy(), cache).incumbents

    assert after.holds is before[0].holds


def test_what_is_no_longer_asked_for_is_forgotten():
    jobs = [
        build.job(name, gpus=2, at=[build.replica("n0", gpus=at)])
        for name, at in (("a", (0, 1)), ("b", (2, 3)))
    ]
    last = build.snapshot(jobs=[*jobs, build.job("c", gpus=8, priority=1)]).canonical()
    cache = EpochCache()
    before = build_problem(last, Policy(), cache).incumbents
    live = reuse_equal_nouns(last.model_copy(update={"jobs": last.jobs[1:]}), last)
    build_problem(live, Policy(), cache)

    back = live.model_copy(update={"jobs": last.jobs})
    after = build_problem(back, Policy(), cache).incumbents

    assert after == before
    assert [one.holds is other.holds for one, other in zip(after, before, strict=True)] == [False, True]
