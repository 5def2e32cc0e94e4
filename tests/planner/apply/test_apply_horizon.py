"""Plans that look ahead, applied: the cluster is as they say, their promises included, and comes to rest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpuplan.models.placement import same_holdings
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.apply.promises import promises_of
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.sources.files import load_snapshot, snapshot_text
from tests.support.builders.build import NOW, job, snapshot
from tests.support.samples.promise_plans import AHEAD, promises_in
from tests.support.strategies import time_strategies

WORLD = snapshot(
    jobs=[
        job("a", gpus=8, expected_duration="90m"),
        job("b", gpus=8, expected_duration="30m"),
        job("c", gpus=8, replicas=2, expected_duration="1h", priority=3, depends_on=[{"job": "b"}]),
        job("d", gpus=4, expected_duration="1h"),
    ]
)


@dataclass
class Loop:
    """A cluster that is planned and applied to."""

    live: SimulatedCluster
    folder: Path

    def plan(self, policy=AHEAD):
        greedy = policy.model_copy(update={"solvers": ()})
        return plan_epoch(self.live.snapshot(), greedy, seed=0, created_at=NOW)

    def apply(self, plan):
        log = AuditLog(self.folder / "audit.jsonl")
        return apply_plan(plan, self.live, log, actor="ann@login1", now=lambda: NOW)


@pytest.fixture
def loop(tmp_path):
    with SimulatedCluster.create(tmp_path / "c.db", WORLD) as live:
        yield Loop(live, tmp_path)


def test_planned_again_at_once_nothing_changes_and_all_is_promised_as_before(loop):
    plan = loop.plan()
    assert plan.has_changes
    assert promises_of(plan)
    loop.apply(plan)
    before = loop.live.snapshot()

    again = loop.plan()

    assert not again.has_changes
    assert promises_of(again) == promises_of(plan) == promises_in(loop.live)
    assert loop.apply(again).done == ("promises",)
    assert loop.live.snapshot() == before


def test_hour_by_hour_every_promise_is_kept_until_all_jobs_are_over(loop):
    told = {}
    for _ in range(6):
        plan = loop.plan()
        loop.apply(plan)
        found = loop.live.snapshot()
        for name, promise in told.items():
            each = found.job_by_name.get(name)
            if each and each.running:
                assert each.running.started_at <= promise.start
            elif each:
                assert each.promise
                assert each.promise.start <= promise.start
        told |= promises_in(loop.live)
        loop.live.advance(3600)

    assert told.keys() == {"a", "c"}
    assert [each.name for each in loop.live.snapshot().finished] == ["a", "b", "c", "d"]


def _sound(seed):
    """A random world that makes sense, with its policy; None where the draw made none."""
    given = time_strategies.instance(seed)
    made = Snapshot.model_validate(given.snapshot.document()).canonical()
    return None if any(inconsistencies(made)) else (made, given.policy)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_a_random_world_is_after_an_apply_as_its_plan_says(seed):
    sound = _sound(seed)
    if sound is None:
        return
    world, policy = sound
    with TemporaryDirectory() as name, SimulatedCluster.create(Path(name) / "c.db", world) as live:
        loop = Loop(live, Path(name))
        plan = loop.plan(policy)
        loop.apply(plan)

        found = live.snapshot()
        placed = {placement.job: placement.replicas for placement in plan.placements}
        assert {each.job for each in found.running_placements} == placed.keys()
        assert all(same_holdings(each.replicas, placed[each.job]) for each in found.running_placements)
        assert promises_in(live) == promises_of(plan)
        assert not list(inconsistencies(found))
        path = Path(name) / "now.json"
        path.write_text(snapshot_text(found))
        assert load_snapshot(str(path)) == found
        live.advance(int(timedelta(hours=30).total_seconds()))
        assert not list(inconsistencies(live.snapshot()))


@pytest.mark.slow
def test_most_random_worlds_make_sense():
    assert sum(_sound(seed) is not None for seed in range(60)) > 30
