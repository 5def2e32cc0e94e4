"""What is true of every replay, in random worlds: nothing is lost, held twice, or done unnoticed."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import cache

import pytest

from gpuplan.models.placement import same_holdings
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.simulate.simulated_job import JobEventKind
from gpuplan.planner.simulate.world import advance_world
from tests.support.seeds import EVERY_SEED
from tests.support.strategies.random_traces import held_by_gpu, random_trace, steps

SEEDS = range(40) if EVERY_SEED else (0, 4, 7)
EPOCHS = 16


@cache
def replayed(seed):
    """A trace, and each epoch of it."""
    trace, policy = random_trace(seed)
    return trace, policy, tuple(steps(trace, policy, epochs=EPOCHS))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_job_is_still_to_come_or_there_or_over_exactly_once(seed):
    trace, _, replay = replayed(seed)
    every = {job.name for job in trace.start.jobs} | {each.job.name for each in trace.coming}
    over = set()

    for step in replay:
        ended = [
            each.job
            for each in step.elapsed.happened
            if each.kind in (JobEventKind.FINISHED, JobEventKind.KILLED)
        ]
        assert len(ended) == len(set(ended))
        assert over.isdisjoint(ended)
        over |= set(ended)
        world = step.elapsed.world
        parts = [set(world.tasks), {each.job.name for each in world.coming}, over]
        assert set.union(*parts) == every
        assert sum(map(len, parts)) == len(every)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_runs_is_what_the_plan_says_and_no_gpu_is_held_twice(seed):
    for step in replayed(seed)[2]:
        running = {placement.job: placement for placement in step.after.snapshot().running_placements}
        planned = {placement.job: placement for placement in step.plan.placements}
        assert running.keys() == planned.keys()
        assert all(same_holdings(running[job].replicas, planned[job].replicas) for job in running)
        nodes = step.after.cluster.node_by_name
        for (node, index), milli in held_by_gpu(step.after).items():
            assert milli <= MILLI
            assert index in nodes[node].gpus.by_index
            assert nodes[node].ready


@pytest.mark.parametrize("seed", SEEDS)
def test_after_acting_the_world_breaks_no_rule_of_its_own(seed):
    """Planned again at once, leaving all as it is is a legal answer."""
    _, policy, replay = replayed(seed)
    for step in replay:
        snapshot = step.after.snapshot()
        # Promises of other plans are kept by later ones; fewer than guaranteed is a price, not a rule.
        assert verify(snapshot, policy, snapshot.running_placements).violations == ()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_is_finished_once_all_its_work_is_done_and_what_was_lost_is_done_again(seed):
    trace, _, replay = replayed(seed)
    at_first = {job.name for job in trace.start.jobs}
    need = {each.job.name: each.duration * MILLI for each in trace.coming}
    worked, last_rate, stopped = defaultdict(int), {}, 0

    for step in replay:
        for each in (*step.acted, *step.elapsed.happened):
            stopped += each.kind in (JobEventKind.PREEMPTED, JobEventKind.INTERRUPTED)
            if each.held is None or each.job in at_first:
                continue
            stretch = each.held.interval
            assert each.held.seconds >= each.held.idle + each.held.lost
            worked[each.job] += stretch.rate * (each.held.seconds - each.held.idle - each.held.lost)
            last_rate[each.job] = stretch.rate
            if each.kind is JobEventKind.FINISHED:
                assert need[each.job] <= worked[each.job] < need[each.job] + last_rate[each.job]
            elif each.kind is not JobEventKind.KILLED:
                assert worked[each.job] < need[each.job]


def test_the_random_worlds_have_jobs_that_were_stopped_resized_and_interrupted():
    seen = set()
    for seed in SEEDS:
        for step in replayed(seed)[2]:
            seen |= {each.kind for each in (*step.acted, *step.elapsed.happened)}

    assert seen >= set(JobEventKind) - {JobEventKind.KILLED, JobEventKind.MOVED}


@pytest.mark.parametrize("seed", SEEDS)
def test_what_went_by_is_what_the_stretches_add_up_to(seed):
    trace, _, replay = replayed(seed)
    flow, stretches, world = 0, 0, None
    began = trace.start.taken_at
    for step in replay:
        flow += step.elapsed.flow.held
        world = step.elapsed.world
        for each in (*step.acted, *step.elapsed.happened):
            if each.held is not None:
                stretches += _gpu_seconds(each.held, began)
    for task in world.tasks.values():
        if task.interval is not None:
            stretches += _gpu_seconds(task.ended(world.now), began)

    assert flow == stretches


def _gpu_seconds(held, began):
    seconds = (held.until - max(held.interval.begins, began)).total_seconds()
    return held.interval.gpu_milli * max(0, int(seconds))


@pytest.mark.parametrize("seed", SEEDS)
def test_no_more_gpus_are_held_than_are_up(seed):
    for step in replayed(seed)[2]:
        assert step.elapsed.flow.held <= step.elapsed.flow.usable


@pytest.mark.parametrize("seed", SEEDS[:2])
def test_time_may_pass_in_pieces_or_at_once(seed):
    for step in replayed(seed)[2][:6]:
        piece, happened, held = step.after, [], 0
        for _ in range(9):
            passed = advance_world(piece, piece.now + timedelta(seconds=100))
            piece, held = passed.world, held + passed.flow.held
            happened += passed.happened
        assert piece == step.elapsed.world
        assert held == step.elapsed.flow.held
        assert sorted(map(repr, happened)) == sorted(map(repr, step.elapsed.happened))
