"""
Random faults while groups start: after no apply that ended is a group part-started.

An apply may be killed at any call and at any pause, and nodes may fail; then the same plan is applied again.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.planner.apply.audit_log import AuditLog, verify_log
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.planner.apply.test_apply_faults import MOST_APPLIES, Faults, FaultyClock, KilledError
from tests.support.doubles.lasting_cluster import LastingCluster
from tests.support.samples.apply_world import carry_out
from tests.support.samples.group_world import GROUPS, HELD, WORLD, group_plan, part_started, running
from tests.support.seeds import EVERY_SEED

CHUNKS: Final = 4
RUNS: Final = 250 if EVERY_SEED else 14
"""Runs a chunk."""


def plan_with_rules(draw):
    return group_plan(
        parallel=draw.choice((1, 3, 10)),
        on_failure=draw.choice(("stop", "continue")),
        attempts=draw.randint(1, 3),
        group_timeout=draw.choice((3, 30, 600)),
        timeouts=draw.choice(({}, dict.fromkeys(("preempt", "start"), 30))),
    )


class NodeFaults(Faults):
    """The same, and nodes that fail between two calls; they return before the next apply."""

    def __init__(self, draw, live):
        super().__init__(draw)
        self.live = live
        self.fails, self.down = draw.random() < 0.5, ""

    def at(self, call, name=""):
        if self.fails and call in ("reserve", "begin") and self.draw.random() < 0.1:
            self.fails = False
            self.seen["node"] += 1
            self.down = self.draw.choice(("n0", "n1", "n2"))
            self.live.fail_node(self.down)
        return super().at(call, name)

    def mend(self):
        """Return the node that failed."""
        if self.down:
            self.live.return_node(self.down)
            self.down = ""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_apply_that_ended_leaves_a_group_part_started(chunk, tmp_path):
    seen = Counter()
    for seed in range(chunk * RUNS, (chunk + 1) * RUNS):
        draw = random.Random(seed)
        plan = plan_with_rules(draw)
        with (
            TemporaryDirectory(dir=tmp_path) as folder,
            SimulatedCluster.create(Path(folder) / "c.db", WORLD) as inner,
        ):
            faults = NodeFaults(draw, inner)
            cluster = LastingCluster(inner, FaultyClock(faults), faults.lasts, faults.at)
            log = AuditLog(Path(folder) / "audit.jsonl")
            for _ in range(MOST_APPLIES):
                try:
                    carry_out(cluster, log, plan=plan, clock=cluster.clock, resume=True)
                except KilledError:
                    seen["killed by half"] += bool(part_started(inner))
                    continue
                except PlannerError as error:
                    seen["ended early"] += 1
                    if was_judged(log):
                        told = told_left(error)
                        assert not part_started(inner).keys() - started_whole(log) - told, seed
                        seen["told"] += bool(told)
                    continue
                finally:
                    faults.mend()
                break
            else:
                seen["stale"] += 1
                continue
            lost = HELD.keys() - running(inner)
            assert not lost or faults.seen["node"], seed
            assert not part_started(inner).keys() - started_whole(log), seed
            seen["lost later"] += bool(lost)
            assert_each_is_recorded_once(verify_log(log.path).records)
            seen += faults.seen + Counter(done=1)

    assert seen["done"] - seen["lost later"] > RUNS // 2
    assert seen["told"] + seen["lost later"] < RUNS // 5
    assert seen["killed by half"]
    assert {("reserve", "killed before"), ("abort", "lost"), ("begin", "refused")} <= seen.keys()


def started_whole(log):
    """The groups that once ran as a whole: what a node that fails later takes of them is no part-start."""
    records = verify_log(log.path).records
    done = {each.subject for each in records if each.outcome and each.outcome.value in ("done", "skipped")}
    return {name for name, jobs in GROUPS.items() if done >= {f"job {job}" for job in jobs}}


def told_left(error):
    """The groups of which an apply itself said that some starts could not be taken back in time."""
    outcome = getattr(error, "outcome", None)
    reasons = " ".join(failure.reason for failure in outcome.failures) if outcome else ""
    jobs = {job for found in re.findall(r"not taken back: ([\w, -]+)", reasons) for job in found.split(", ")}
    return {name for name, members in GROUPS.items() if jobs & {*members}}


def was_judged(log):
    """True if the last apply got as far as to begin steps: one that found the plan stale did nothing."""
    records = verify_log(log.path).records if log.path.exists() else ()
    last = records[-1] if records else None
    return last is not None and last.kind.value == "end" and not last.detail.startswith("interrupted")


def assert_each_is_recorded_once(records):
    """Each start is recorded as done once, after its last intent."""
    for job in HELD:
        own = [record for record in records if record.action == f"start/{job}"]
        # One of which a precondition does not hold fails without an intent.
        assert own[0].kind.value == "intent" or own[0].outcome.value == "failed"
        ends = [record.outcome.value for record in own if record.outcome]
        assert sum(end in ("done", "skipped") for end in ends) == 1
        assert ends[-1] in ("done", "skipped")
