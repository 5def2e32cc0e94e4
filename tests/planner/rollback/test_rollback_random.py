"""
Rollbacks of plans of small random worlds, applied wholly, in part, and with faults.

What a rollback does not tell to stay is as before the plan; what the plan did not touch stays as it is.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import changes_of
from gpuplan.planner.apply.applied import applied_by_log, applied_on
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.outcome import ApplyHooks
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.rollback.rollback import roll_back
from tests.planner.apply.test_apply_faults import Faults, FaultyClock, KilledError, plan_of_all_kinds
from tests.support.builders.build import NOW
from tests.support.doubles.lasting_cluster import LastingCluster
from tests.support.oracles.rollback_oracle import assert_legal, assert_undone
from tests.support.samples.apply_world import carry_out
from tests.support.seeds import EVERY_SEED, examples
from tests.support.strategies.changing_worlds import FREE_HAND, worlds
from tests.support.strategies.snapshot_strategies import COIN

SEEDS = 200 if EVERY_SEED else 16


def planned(world):
    return plan_epoch(world, FREE_HAND.model_copy(update={"solvers": ()}), seed=0, created_at=NOW)


@contextmanager
def created(world):
    """A simulated cluster of a world, and a log."""
    with (
        TemporaryDirectory() as folder,
        SimulatedCluster.create(Path(folder) / "cluster.db", world) as live,
    ):
        yield live, AuditLog(Path(folder) / "audit.jsonl")


def apply(plan, live, log, *, cut=None):
    """Apply a plan, or its first `cut` steps."""
    told = {"actor": "ann@login1", "now": lambda: NOW, "resume": True}
    if cut is None:
        apply_plan(plan, live, log, **told)
        return
    done = itertools.count()
    with suppress(PlannerError):
        apply_plan(plan, live, log, hooks=ApplyHooks(stop=lambda: next(done) >= cut), **told)


def rolled_back(plan, live, log, **more):
    back = roll_back(plan, applied_on(plan, live, log), created_at=NOW, **more)
    assert_legal(back)
    return back


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(worlds(), st.data())
def test_what_is_not_told_to_stay_is_as_before(world, data):
    plan = planned(world)
    changes = len(changes_of(plan.actions))
    if not changes:
        return
    cut = data.draw(st.none() | st.integers(0, changes - 1))
    with created(world) as (live, log):
        apply(plan, live, log, cut=cut)
        between = live.snapshot()
        back = rolled_back(plan, live, log, stop_started=data.draw(COIN))

        apply(back, live, log)

        after = live.snapshot()
        assert_undone(plan, back, before=world, between=between, after=after)
        # The log and a snapshot say the same as the cluster.
        by_log = roll_back(plan, applied_by_log(plan, after, log), created_at=NOW)
        assert by_log.plan_id == rolled_back(plan, live, log).plan_id


@pytest.mark.slow
@settings(max_examples=30)
@given(worlds())
def test_a_rollback_can_be_rolled_back(world):
    plan = planned(world)
    with created(world) as (live, log):
        apply(plan, live, log)
        between = live.snapshot()
        back = rolled_back(plan, live, log)
        if not back.has_changes:
            return
        apply(back, live, log)
        undone = live.snapshot()

        forth = rolled_back(back, live, log)
        apply(forth, live, log)

        assert_undone(back, forth, before=between, between=undone, after=live.snapshot())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_an_apply_that_failed_or_was_killed_is_undone(seed, tmp_path):
    draw = random.Random(seed)
    plan, faults = plan_of_all_kinds(draw), Faults(draw)
    log = AuditLog(tmp_path / "audit.jsonl")
    with SimulatedCluster.create(tmp_path / "c.db", plan.snapshot) as inner:
        cluster = LastingCluster(inner, FaultyClock(faults), faults.lasts, faults.at)
        for _ in range(draw.randint(1, 3)):
            with suppress(KilledError, PlannerError):
                carry_out(cluster, log, plan=plan, clock=cluster.clock, resume=True)
        faults.left = 0
        cluster.clock.sleep(1000)
        if not log.path.exists() or not log.records():
            return
        between = inner.snapshot()
        back = rolled_back(plan, cluster, log, stop_started=draw.random() < 0.5)

        carry_out(cluster, log, plan=back, clock=cluster.clock)

        assert_undone(plan, back, before=plan.snapshot, between=between, after=inner.snapshot())
        again = rolled_back(plan, cluster, log)
        assert {change.type for change in changes_of(again.actions)} <= {"scale_down"}


@pytest.mark.slow
def test_the_faults_leave_something_of_every_kind_to_undo(tmp_path):
    """The test above is of use only if rollbacks there have changes of all kinds."""
    seen = Counter()
    for seed in range(SEEDS):
        draw = random.Random(seed)
        plan = plan_of_all_kinds(draw)
        with created(plan.snapshot) as (live, log):
            apply(plan, live, log, cut=draw.randint(1, len(changes_of(plan.actions))))
            back = rolled_back(plan, live, log, stop_started=draw.random() < 0.5)
            seen.update(change.type for change in changes_of(back.actions))
    assert seen.keys() >= {"start", "preempt", "migrate", "grow", "shrink", "uncordon", "repartition"}
    assert {"scale_up", "scale_down"} <= seen.keys()
