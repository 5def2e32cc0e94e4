"""Epoch after epoch in a busy cluster: history and cluster agree, nothing is lost, nothing piles up."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.planner.service.history import EpochOutcome, read_history
from tests.support.doubles.periodic_service import EVERY, Busy, carried_out
from tests.support.seeds import EVERY_SEED

pytestmark = pytest.mark.slow

EPOCHS, SEED = (200, 200) if EVERY_SEED else (25, 2)

SPARING = Policy(solvers=(), disruption=Disruption(minimum_runtime=2 * EVERY, max_preemptions=2))


def test_a_busy_cluster_is_planned_for_hours(tmp_path):
    busy = Busy(tmp_path, policy=SPARING, seed=SEED, looked_at=(1, 11, EPOCHS - 1))
    busy.arrive(20)

    assert busy.epochs(EPOCHS)
    performed = Counter(key.partition("-")[0] for key, _ in busy.cluster.operations())
    accounted, ended = busy.accounted(), len(busy.cluster.finished())
    busy.close()

    records = read_history(tmp_path / "history.db")
    assert [record.number for record in records] == list(range(1, EPOCHS + 1))
    assert {record.outcome for record in records} == {EpochOutcome.APPLIED, EpochOutcome.UNCHANGED}
    # Every plan was verified again, and after each apply the cluster was as planned.
    assert busy.faults == []
    # What the history says was done is what the cluster did.
    assert carried_out(records) == performed
    # Every job that was ever submitted waits, runs or has ended.
    assert accounted == Counter(busy.submitted)
    assert ended > EPOCHS / 2
    assert busy.failures > EPOCHS / 40
    # No job is stopped sooner or more often than the policy allows, nor twice for the same job, unless that
    # lost its node or had to make room itself.
    stopped = busy.stopped.values()
    again = [later - earlier for times in stopped for earlier, later in pairwise(times)]
    assert sum(map(len, stopped)) > EPOCHS / 20
    assert all(apart.total_seconds() > SPARING.disruption.minimum_runtime for apart in again)
    assert max(map(len, stopped)) == SPARING.disruption.max_preemptions
    turns = Counter(busy.turns)
    lost = busy.hit + Counter({name: len(times) for name, times in busy.stopped.items()})
    assert {pair for pair, times in turns.items() if times > 1 + lost[pair[1]]} == set()
    # Of an epoch its plan stays and nothing else; memory grows with the jobs that are over, and not by more.
    (plans, *_), (_, objects, jobs), (_, last_objects, last_jobs) = busy.alive.values()
    assert {each for each, *_ in busy.alive.values()} == {plans}
    assert last_objects - objects < 20 * (last_jobs - jobs) + 3000
