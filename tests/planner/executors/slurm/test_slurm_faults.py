"""Random faults between gpuplan and a real Slurm: commands that are lost, or done without an answer."""

from __future__ import annotations

import random
import subprocess

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.apply.apply import apply_plan
from gpuplan.planner.apply.audit_log import AuditLog, verify_log
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.executors.slurm import commands
from gpuplan.planner.executors.slurm.cluster import SlurmCluster
from tests.support.builders.build import NOW
from tests.support.seeds import EVERY_SEED

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

SEEDS = range(60) if EVERY_SEED else (0,)
RULES = {"backoff": 1, "attempts": 10, "on_failure": "continue", "most_failures": 50}
MOST_APPLIES = 30
NO_ANSWER = b"slurm_update error: Unable to contact slurm controller (connect failure)"


class Faulty:
    """Runs commands; some do not arrive, some are done and their answer is lost."""

    def __init__(self, seed):
        self.draw, self.lost, self.unanswered = random.Random(seed), 0, 0

    def __call__(self, words, **how):
        drawn = self.draw.random()
        if drawn < 0.12:
            self.lost += 1
            return subprocess.CompletedProcess(words, 1, b"", NO_ANSWER)
        done = subprocess.run(words, **how)  # noqa: PLW1510 - `check` is in `how`
        if drawn < 0.24:
            self.unanswered += 1
            return subprocess.CompletedProcess(words, 1, b"", NO_ANSWER)
        return done


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_is_carried_out_once_whatever_is_lost_on_the_way(slurm, tmp_path, monkeypatch, seed):
    draw = random.Random(seed)
    victims = [
        slurm.submit("-N1", f"--gpus-per-node=h100:{draw.choice((4, 8))}", comment=draw.choice(NOTICES))
        for _ in range(4)
    ]
    cluster = SlurmCluster()
    log = AuditLog(tmp_path / "audit.jsonl")
    applied(planned(cluster), cluster, log)
    width = draw.choice((2, 3, 4))
    large = slurm.submit(f"-N{width}", "--ntasks-per-node=1", "--gpus-per-node=h100:8", "-p", "high")
    small = slurm.submit("-N1", "--gpus-per-node=h100:1", "-p", "high")
    plan = planned(cluster)
    stopped = [change.job for change in plan.actions if change.type == "preempt"]
    faults = Faulty(seed)
    with monkeypatch.context() as patch:
        patch.setattr(commands, "subprocess", Subprocess(faults))
        _apply_until_complete(plan, cluster, log)
    states = slurm.states()
    expected = {each.job: each.nodes for each in plan.target.placements}
    assert {job for job, (state, _) in states.items() if state == "RUNNING"} == expected.keys()
    assert {
        job for job, (state, _) in states.items() if state == "PENDING"
    } == states.keys() - expected.keys()
    assert {each.job: each.nodes for each in cluster.snapshot().running_placements} == expected
    restarts = {job: slurm.command("scontrol", "show", "job", job) for job in (*victims, large, small)}
    assert {job for job, text in restarts.items() if "Restarts=1" in text} == set(stopped)
    assert {job for job, text in restarts.items() if "Restarts=0" in text} == {*victims, large, small} - set(
        stopped
    )
    assert verify_log(log.path).records[-1].detail.startswith("complete")
    assert faults.lost + faults.unanswered > 0


def test_a_start_that_was_killed_before_its_mark_is_marked_by_the_next_apply(slurm, tmp_path, monkeypatch):
    job = slurm.submit("-N1", "--gpus-per-node=h100:4")
    plan = planned(SlurmCluster())
    log = AuditLog(tmp_path / "audit.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(SlurmCluster, "_land", killed)
        with pytest.raises(KeyboardInterrupt):
            applied(plan, SlurmCluster(), log)
    assert '"step":"landed"' not in slurm.command("scontrol", "show", "job", job)

    applied(plan, SlurmCluster(), log, resume=True)

    assert '"step":"landed"' in slurm.command("scontrol", "show", "job", job)
    assert verify_log(log.path).records[-1].detail.startswith("complete")


def killed(*_):
    raise KeyboardInterrupt


NOTICES = ("gpuplan", "gpuplan signal=CONT@2")


class Subprocess:
    """The module `subprocess` with another `run`."""

    TimeoutExpired, DEVNULL = subprocess.TimeoutExpired, subprocess.DEVNULL

    def __init__(self, run):
        self.run = run


def planned(cluster):
    world = cluster.snapshot()
    return plan_epoch(world, Policy(solvers=(), apply=RULES), seed=0, created_at=world.taken_at)


def applied(plan, cluster, log, **how):
    return apply_plan(plan, cluster, log, actor="test", now=lambda: NOW, **how)


def _apply_until_complete(plan, cluster, log):
    """Apply and resume, as an operator would, until all is done."""
    resume = False
    for _ in range(MOST_APPLIES):
        try:
            outcome = applied(plan, cluster, log, resume=resume)
        except PlannerError:
            resume = True
            continue
        assert not outcome.failures
        return
    raise AssertionError(f"not complete after {MOST_APPLIES} applies")
