"""
Random faults while a plan is applied: it is resumed until it is done, and nothing is done twice or by half.

An apply may be killed at any call and at any pause; calls fail, get no answer, or are done without an answer.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.policy.settings import ApplyPolicy
from gpuplan.planner.apply.audit_log import AuditLog, verify_log
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import with_id
from tests.support.doubles.interrupted_apply import apply_at_once
from tests.support.doubles.lasting_cluster import LastingCluster, VirtualClock
from tests.support.samples import all_actions
from tests.support.samples.apply_world import carry_out
from tests.support.seeds import EVERY_SEED

CHUNKS: Final = 4
RUNS: Final = 250 if EVERY_SEED else 12
"""Runs a chunk."""
MOST_APPLIES: Final = 60


class KilledError(Exception):
    """The apply ends without a word."""


class Faults:
    """Trouble drawn at random at each call and each pause; none once there were enough."""

    def __init__(self, draw):
        self.draw, self.left, self.seen = draw, draw.randint(1, 12), Counter()

    def lasts(self, _):
        return self.draw.choice((0, 5, 60))

    def at(self, call, _=""):
        if not self.left or self.draw.random() > 0.25:
            return ""
        kinds = {
            "begin": ("killed before", "lost", "no node answers", "refused"),
            "observe": ("killed before", "lost"),
            "undo": ("killed before", "lost"),
            "reserve": ("killed before", "lost", "no node answers", "refused"),
            "abort": ("killed before", "lost"),
            "pause": ("killed before",),
        }
        self.left -= 1
        kind = self.draw.choice(kinds[call])
        self.seen[call, kind] += 1
        if kind == "killed before":
            raise KilledError
        if kind == "refused":
            raise PlannerError("the cluster refuses.")
        return kind


class FaultyClock(VirtualClock):
    """Time in which an apply may be killed, and which jumps."""

    def __init__(self, faults):
        super().__init__()
        self.faults = faults

    def sleep(self, seconds):
        self.faults.at("pause")
        super().sleep(seconds + self.faults.draw.choice((0, 0, 0, 100)))


def plan_of_all_kinds(draw):
    plan = all_actions.PLAN
    rules = ApplyPolicy(
        parallel=draw.choice((1, 3, 10)),
        on_failure=draw.choice(("stop", "continue")),
        attempts=draw.randint(1, 3),
        timeouts=draw.choice(({}, dict.fromkeys(("preempt", "migrate", "start", "scale_up"), 30))),
    )
    return with_id(plan.model_copy(update={"policy": plan.policy.model_copy(update={"apply": rules})}))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_whatever_fails_the_cluster_ends_as_planned(chunk, tmp_path):
    (tmp_path / "whole").mkdir()
    wanted, _ = apply_at_once(all_actions.PLAN, tmp_path / "whole")
    seen = Counter()
    for seed in range(chunk * RUNS, (chunk + 1) * RUNS):
        draw = random.Random(seed)
        plan, faults = plan_of_all_kinds(draw), Faults(draw)
        with (
            TemporaryDirectory(dir=tmp_path) as folder,
            SimulatedCluster.create(Path(folder) / "c.db", plan.snapshot) as inner,
        ):
            cluster = LastingCluster(inner, FaultyClock(faults), faults.lasts, faults.at)
            cluster.shows_early = draw.choice((True, False))
            log = AuditLog(Path(folder) / "audit.jsonl")
            applies = finish(cluster, log, plan)

            assert inner.snapshot() == wanted, seed
            done = [key for key, _ in inner.operations()]
            assert len(done) == len(set(done)) == len(plan_ids(plan)), seed
            assert_complete(verify_log(log.path).records, plan)
            seen += faults.seen + Counter(applies=applies)

    assert seen["applies"] > RUNS
    assert {call for call, _ in seen.keys() - {"applies"}} >= {"begin", "observe", "pause"}


def finish(cluster, log, plan):
    """Apply a plan again and again until it is done; returns how often."""
    for number in range(MOST_APPLIES):
        try:
            carry_out(cluster, log, plan=plan, clock=cluster.clock, resume=True)
        except (KilledError, PlannerError):
            continue
        return number + 1
    raise AssertionError("it was never done")


def plan_ids(plan):
    return [action.id for action in plan.actions if action.type not in ("keep", "wait")]


def assert_complete(records, plan):
    """Each action has an intent before it landed, and an end that says so."""
    for action in plan_ids(plan):
        own = [record for record in records if record.action == action]
        assert own[0].kind.value == "intent"
        assert own[-1].outcome.value in ("done", "skipped")
    assert records[-1].detail.startswith("complete")
