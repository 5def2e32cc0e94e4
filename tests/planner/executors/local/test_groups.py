"""Groups of jobs on one host: real processes that start together, or none of them."""

from __future__ import annotations

import signal
import time

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import changes_of
from gpuplan.planner.action_marks import MarkStage
from gpuplan.planner.apply.standing import key_of
from gpuplan.planner.executors.interface import ActionPhase, ExecutionError
from gpuplan.planner.plan_file.plan_file import save_plan
from tests.planner.executors.local.test_host_killed import apply_in_child, begun
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.harness.local_jobs import SLEEP, Jobs, kinds, wait_until
from tests.support.seeds import EVERY_SEED


class Refusing(Wrapped):
    """A host on which one job cannot be confirmed, once the other one runs."""

    def __init__(self, inner, job, ready):
        super().__init__(inner)
        self.job, self.ready = job, ready

    def begin(self, action, key):
        if action.job == self.job:
            self.ready()
            raise ExecutionError(f"job {action.job} cannot start: its GPU burns.")
        return self.inner.begin(action, key)


def submit_pair(jobs, log):
    for name in ("a", "b"):
        jobs.submit(name, f"echo {name} >> {log}; {SLEEP}", gpus=2, co_start="pair")


@pytest.mark.slow
def test_a_pair_starts_together(jobs, tmp_path):
    submit_pair(jobs, tmp_path / "log")
    plan = jobs.plan()
    assert kinds(plan) == ["start/a", "start/b"]

    jobs.apply(plan)

    planned = {each.job: [held.index for held in each.replicas[0].gpus] for each in plan.placements}
    assert jobs.gpus() == planned
    assert not jobs.plan().has_changes


@pytest.mark.slow
def test_the_one_that_runs_is_stopped_if_the_other_cannot_start(jobs, tmp_path):
    log = tmp_path / "log"
    submit_pair(jobs, log)
    plan = jobs.plan()
    last = changes_of(plan.actions)[-1].job
    cluster = Refusing(jobs.host, last, lambda: wait_until(lambda: begun(log), "the first one begins"))

    with pytest.raises(PlannerError, match=r"its GPU\s+burns"):
        Jobs(cluster, tmp_path).apply(plan)

    assert jobs.gpus() == {}
    assert len(begun(log)) == 1
    for name in ("a", "b"):
        record = jobs.record(name)
        (mark,) = record.marks
        assert mark.step is MarkStage.FAILED
        assert mark.reason.endswith("its GPU burns.")
        assert (record.job.progress, record.job.failures, record.job.preemptions) == (None, 0, 0)
    jobs.apply(plan)
    assert jobs.gpus().keys() == {"a", "b"}


def test_gpus_that_are_reserved_are_not_given_to_others_of_the_plan(jobs, tmp_path):
    submit_pair(jobs, tmp_path / "log")
    plan = jobs.plan()
    first, second = changes_of(plan.actions)
    stolen = second.model_copy(update={"after": first.after.model_copy(update={"job": second.job})})

    assert jobs.host.reserve(first, key_of(plan, first)).phase is ActionPhase.RESERVED
    assert jobs.host.reserve(stolen, key_of(plan, second)).phase is ActionPhase.ASKED
    assert jobs.host.reserve(stolen, f"other:{second.id}").phase is ActionPhase.RESERVED
    assert jobs.gpus() == {}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("which", range(1, 30, 1 if EVERY_SEED else 14))
def test_an_apply_killed_at_any_deed_goes_on(jobs, tmp_path, which, when):
    log = tmp_path / "log"
    submit_pair(jobs, log)
    save_plan(jobs.plan(), tmp_path / "plan.json")
    folder = jobs.host.queue.folder

    first = apply_in_child(tmp_path / "plan.json", folder, which, when)

    if first.returncode != 0:
        assert first.returncode == -signal.SIGKILL, first.stderr
        second = apply_in_child(tmp_path / "plan.json", folder, 0, when)
        assert second.returncode == 0, second.stderr
    assert jobs.gpus().keys() == {"a", "b"}
    wait_until(lambda: len(begun(log)) == 2, "both begin")
    time.sleep(0.2)
    assert sorted(begun(log)) == ["a", "b"]
