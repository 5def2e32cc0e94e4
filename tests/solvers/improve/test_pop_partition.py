"""Partition: parts of a cluster share all that there is; put back together they make a legal, better plan."""

from __future__ import annotations

import gc
import os
import struct
import time
from multiprocessing.connection import Connection

import numpy as np
import pytest

from gpuplan.models.job import LocalityPreference
from gpuplan.models.plan.desired_state import Target
from gpuplan.planner.problem_builder import pose
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.improve import pop_search
from gpuplan.solvers.improve.destroy import lift, may_be_asked_about
from gpuplan.solvers.improve.pop_partition import divide, parts_of
from gpuplan.solvers.improve.pop_search import improve_in_parts
from gpuplan.solvers.improve.subproblem import ask_about, is_free
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.parallel import side_by_side
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged

SEEDS = range(10)
MAKERS = [instances.everything, instances.everything_mixed]


def budget(seconds=60.0, ticks=None):
    return Budget(time.monotonic() + seconds, 2, ticks=ticks)


def posed(instance):
    return pose(instance.snapshot, instance.policy)


def divided(ledger, parts, seed):
    return divide(ledger, parts, np.random.default_rng(seed))


def racks(count, nodes=4, *, gpus=8):
    """Racks of two GPU models in turn, and gangs that need one each."""
    members = [
        build.node(
            f"r{rack:02d}n{node}", model=("A100-80GB", "H100-80GB")[rack % 2], gpus=gpus, rack=f"r{rack:02d}"
        )
        for rack in range(count)
        for node in range(nodes)
    ]
    jobs = [
        build.job(
            f"gang-{number:02d}",
            gpus=gpus,
            priority=number % 3,
            replicas=2,
            locality=LocalityPreference(required="rack"),
        )
        for number in range(count)
    ]
    return build.snapshot(nodes=members, jobs=jobs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", MAKERS)
def test_parts_cover_all_nodes_that_may_be_asked_about_once(make, seed):
    ledger = greedy(posed(make(seed)))

    parts = divided(ledger, 2, seed)

    assert sorted(node for part in parts for node in part.nodes) == sorted(may_be_asked_about(ledger))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", MAKERS)
def test_each_waiting_job_may_be_started_by_one_part_at_most(make, seed):
    ledger = greedy(posed(make(seed)))

    parts = divided(ledger, 3, seed)

    for index, job_class in enumerate(ledger.problem.classes):
        left = ledger.jobs_left(index)
        dealt = [left - part.share.elsewhere[index] for part in parts]
        groups = [{ledger.group_of[node] for node in part.nodes} for part in parts]
        wanted = {group for option in job_class.options for group in option.groups}
        possible = is_free(ledger, index) and any(those & wanted for those in groups)
        assert all(jobs >= 0 for jobs in dealt)
        assert sum(dealt) == (left if possible else 0)
        assert all(those & wanted for jobs, those in zip(dealt, groups, strict=True) if jobs)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", MAKERS)
def test_parts_together_take_no_more_than_queues_have_room_for(make, seed):
    ledger = greedy(posed(make(seed)))

    parts = divided(ledger, 3, seed)

    for index, budget_ in enumerate(ledger.problem.budgets):
        usage = budget_.up_the_tree(ledger.quota.held(index))
        for queue, (used, limit) in enumerate(zip(usage, budget_.firm, strict=True)):
            if limit is not None:
                room = [part.share.budgets[index].firm[queue] - used for part in parts]
                assert sum(room) <= max(0, limit - used) or limit <= used
                assert all(each >= 0 for each in room) or limit <= used


def test_racks_stay_whole_and_every_part_has_as_many_of_each_kind():
    ledger = Ledger(pose(racks(12), instances.POLICY))

    parts = divided(ledger, 3, 0)

    for part in parts:
        names = [ledger.problem.nodes[node].name for node in part.nodes]
        assert len(names) == 16
        assert len({name[:3] for name in names}) == 4
        assert sum(int(name[1:3]) % 2 for name in names) == 8


def test_jobs_that_are_alike_are_dealt_out_evenly():
    ledger = Ledger(pose(racks(12), instances.POLICY))

    parts = divided(ledger, 3, 0)

    for index in range(len(ledger.problem.classes)):
        left = ledger.jobs_left(index)
        dealt = [left - part.share.elsewhere[index] for part in parts]
        assert sum(dealt) == left == 4
        assert max(dealt) - min(dealt) == 1


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", MAKERS)
def test_the_question_about_a_part_has_nothing_of_the_others(make, seed):
    ledger = greedy(posed(make(seed)))
    for part in divided(ledger, 2, seed):
        mark = ledger.mark()
        before = [ledger.jobs_left(index) for index in range(len(ledger.problem.classes))]
        lift(ledger, part.nodes)

        asked = ask_about(ledger, part.nodes, part.share)

        assert asked.nodes == part.nodes
        for index, job_class in zip(asked.classes, asked.problem.classes, strict=True):
            own = ledger.jobs_left(index) - before[index]
            assert len(job_class.jobs) <= own + before[index] - part.share.elsewhere[index]
        ledger.rollback(mark)


@pytest.mark.parametrize("seed", SEEDS[:4])
@pytest.mark.parametrize("make", MAKERS)
def test_asking_about_all_parts_never_loses_nor_breaks_a_rule(make, seed):
    instance = make(seed)
    ledger = greedy(posed(instance))
    running = instance.snapshot.running_placements
    base = judged(instance.snapshot, instance.policy, Target(running)).objective
    before, told = ledger.objective, []

    improve_in_parts(ledger, 2, budget(5.0), lambda: told.append(ledger.objective))

    verification = judged(instance.snapshot, instance.policy, ledger.target(running))
    assert verification.violations == ()
    assert verification.objective == base + ledger.objective
    assert ledger.objective >= before
    assert told == sorted(told)


def test_asking_about_all_parts_finds_what_greedy_missed():
    """Each part has a node, on which a large job pays more than the small one that greedy prefers."""
    models = ("A100-80GB", "H100-80GB")
    jobs = [
        build.job(f"{size}-{model}", gpus=gpus, priority=priority, gpu_models={model: 1})
        for model in models
        for size, gpus, priority in (("small", 1, 2), ("large", 2, 1))
    ]
    snapshot = build.snapshot(nodes=[build.node(model, model=model, gpus=2) for model in models], jobs=jobs)
    ledger = greedy(pose(snapshot, instances.POLICY))
    assert {each.job[:5] for each in ledger.target(()).placements} == {"small"}

    improve_in_parts(ledger, 2, budget(), lambda: None)

    assert {each.job for each in ledger.target(()).placements} == {f"large-{model}" for model in models}


def test_with_ticks_the_outcome_does_not_depend_on_the_number_of_workers():
    instance = instances.everything(7)
    running = instance.snapshot.running_placements
    found = []
    for workers in (1, 2):
        ledger = greedy(posed(instance))
        improve_in_parts(ledger, 2, Budget(time.monotonic() + 600, workers, ticks=3), lambda: None)
        found.append(ledger.target(running))

    assert found[0] == found[1]


def test_small_clusters_are_asked_about_as_a_whole():
    assert parts_of(pose(racks(12), instances.POLICY)) == 1


def test_calls_side_by_side_say_what_they_return_and_none_where_they_fail():
    def fails():
        raise ValueError

    found = sorted(
        side_by_side([lambda: "first", fails, lambda: "third"], workers=2, deadline=time.monotonic() + 60),
        key=lambda each: each[0],
    )

    assert found == [(0, "first"), (1, None), (2, "third")]


def test_calls_that_outlive_the_deadline_are_given_up():
    def hangs():
        time.sleep(600)

    calls = [hangs, hangs, lambda: "never begun"]

    assert list(side_by_side(calls, workers=2, deadline=time.monotonic() + 0.1)) == []


def test_an_answer_that_was_cut_off_is_none(monkeypatch):
    def begin(connection, _):
        os.write(connection.fileno(), struct.pack("!i", 1_000) + b"not a thousand bytes")

    monkeypatch.setattr(Connection, "send", begin)

    assert list(side_by_side([lambda: "lost"], workers=1, deadline=time.monotonic() + 60)) == [(0, None)]


def test_what_was_frozen_before_stays_frozen():
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        list(side_by_side([lambda: "done"], workers=1, deadline=time.monotonic() + 60))
        # Frozen objects go as others do, when nothing refers to them.
        assert gc.get_freeze_count() > before // 2 > 0
    finally:
        gc.unfreeze()


def test_where_nothing_can_be_gained_one_round_is_enough(monkeypatch):
    rounds = []
    monkeypatch.setattr(pop_search, "_improve_each", lambda *_: rounds.append("done"))
    ledger = greedy(pose(build.snapshot(), instances.POLICY))

    improve_in_parts(ledger, 1, Budget(time.monotonic() + 1), lambda: None)

    assert ledger.objective == 0
    assert rounds == ["done"]
