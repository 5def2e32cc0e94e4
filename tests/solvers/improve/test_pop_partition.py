"""Partition: parts of a cluster share all that there is; put back together they make a legal, better plan."""

from __future__ import annotations

import gc
import os
import struct
import time
from multiprocessing.connection import Connection

import numpy as np
import pytest

from gpuplan.models.affinity import LocalityPreference
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.improve.destroy import destroy_part, destroyable_nodes
from gpuplan.solvers.improve.pop_partition import partition_cluster, partition_count
from gpuplan.solvers.improve.subproblem import build_subproblem, is_freely_placed
from gpuplan.solvers.parallel import run_in_forks
from gpuplan.solvers.params.improve import PartitionParams
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build
from tests.support.strategies import instances

SEEDS = range(10)
MAKERS = [instances.everything, instances.everything_mixed]


def posed(instance):
    return build_problem(instance.snapshot, instance.policy)


def divided(ledger, parts, seed):
    return partition_cluster(ledger, parts, np.random.default_rng(seed))


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

    assert sorted(node for part in parts for node in part.nodes) == sorted(destroyable_nodes(ledger))


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
        possible = is_freely_placed(ledger, index) and any(those & wanted for those in groups)
        assert all(jobs >= 0 for jobs in dealt)
        assert sum(dealt) == (left if possible else 0)
        assert all(those & wanted for jobs, those in zip(dealt, groups, strict=True) if jobs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", MAKERS)
def test_parts_together_take_no_more_than_queues_have_room_for(make, seed):
    ledger = greedy(posed(make(seed)))

    parts = divided(ledger, 3, seed)

    for index, budget_ in enumerate(ledger.problem.budgets):
        usage = budget_.usage_up_the_tree(ledger.queues.quota.held(index))
        for queue, (used, limit) in enumerate(zip(usage, budget_.firm, strict=True)):
            if limit is not None:
                room = [part.share.budgets[index].firm[queue] - used for part in parts]
                assert sum(room) <= max(0, limit - used) or limit <= used
                assert all(each >= 0 for each in room) or limit <= used


def test_racks_stay_whole_and_every_part_has_as_many_of_each_kind():
    ledger = Ledger(build_problem(racks(12), instances.POLICY))

    parts = divided(ledger, 3, 0)

    for part in parts:
        names = [ledger.problem.nodes[node].name for node in part.nodes]
        assert len(names) == 16
        assert len({name[:3] for name in names}) == 4
        assert sum(int(name[1:3]) % 2 for name in names) == 8


def test_jobs_that_are_alike_are_dealt_out_evenly():
    ledger = Ledger(build_problem(racks(12), instances.POLICY))

    parts = divided(ledger, 3, 0)

    for index in range(len(ledger.problem.classes)):
        left = ledger.jobs_left(index)
        dealt = [left - part.share.elsewhere[index] for part in parts]
        assert sum(dealt) == left == 4
        assert max(dealt) - min(dealt) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("make", MAKERS)
def test_the_question_about_a_part_has_nothing_of_the_others(make, seed):
    ledger = greedy(posed(make(seed)))
    for part in divided(ledger, 2, seed):
        mark = ledger.undo.mark()
        before = [ledger.jobs_left(index) for index in range(len(ledger.problem.classes))]
        destroy_part(ledger, part.nodes)

        asked = build_subproblem(ledger, part.nodes, part.share)

        assert asked.nodes == part.nodes
        for index, job_class in zip(asked.classes, asked.problem.classes, strict=True):
            own = ledger.jobs_left(index) - before[index]
            assert len(job_class.jobs) <= own + before[index] - part.share.elsewhere[index]
        ledger.undo.rollback(mark)


def test_small_clusters_are_asked_about_as_a_whole():
    assert partition_count(build_problem(racks(12), instances.POLICY), PartitionParams()) == 1


def test_calls_side_by_side_say_what_they_return_and_none_where_they_fail():
    def fails():
        raise ValueError

    found = sorted(
        run_in_forks([lambda: "first", fails, lambda: "third"], workers=2, deadline=time.monotonic() + 60),
        key=lambda each: each[0],
    )

    assert found == [(0, "first"), (1, None), (2, "third")]


def test_calls_that_outlive_the_deadline_are_given_up():
    def hangs():
        time.sleep(600)

    calls = [hangs, hangs, lambda: "never begun"]

    assert list(run_in_forks(calls, workers=2, deadline=time.monotonic() + 0.1)) == []


def test_an_answer_that_was_cut_off_is_none(monkeypatch):
    def begin(connection, _):
        os.write(connection.fileno(), struct.pack("!i", 1_000) + b"not a thousand bytes")

    monkeypatch.setattr(Connection, "send", begin)

    assert list(run_in_forks([lambda: "lost"], workers=1, deadline=time.monotonic() + 60)) == [(0, None)]


@pytest.mark.slow
def test_what_was_frozen_before_stays_frozen():
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        list(run_in_forks([lambda: "done"], workers=1, deadline=time.monotonic() + 60))
        # Frozen objects go as others do, when nothing refers to them.
        assert gc.get_freeze_count() > before // 2 > 0
    finally:
        gc.unfreeze()
