"""Tasks in processes of their own: what each came to, and none outlives the run."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.io.processes import process_id
from gpuplan.planner.whatif.runner import Measured, Processes, Variant, WorkerTask, run
from gpuplan.solvers.worker import ChildOutcome
from tests.support.builders.build import snapshot
from tests.support.doubles.task_engines import Failing
from tests.support.harness.local_jobs import wait_until


@pytest.mark.slow
def test_a_task_that_dies_or_hangs_takes_no_other_with_it():
    tasks = [
        WorkerTask("tests.support.doubles.task_engines:die", (), 30.0),
        WorkerTask("tests.support.doubles.task_engines:hang", ("",), 0.5),
        WorkerTask("tests.support.doubles.task_engines:echo", ("done",), 30.0),
    ]

    found = dict(Processes(3).run(tasks))

    assert "code 3" in found[0].failure
    assert found[1].killed
    assert found[2].last == "done"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_abandoned_run_leaves_no_worker(tmp_path):
    pid_file = tmp_path / "pid"
    tasks = [
        WorkerTask("tests.support.doubles.task_engines:after", (str(pid_file),), 60.0),
        WorkerTask("tests.support.doubles.task_engines:hang", (str(pid_file),), 300.0),
    ]

    outcomes = Processes(2).run(tasks)
    assert next(outcomes)[0] == 0
    pid = int(pid_file.read_text())
    outcomes.close()

    wait_until(lambda: process_id(pid) is None, "the worker has ended")


def variant(name, measure, **more):
    return Variant(name, snapshot(), Policy(), 0, measure, **more)


def refused(_variant):
    raise PlannerError("no plan can be made")


def test_each_variant_has_its_value_or_why_there_is_none():
    variants = [
        variant("jobs", lambda each: len(each.snapshot.jobs)),
        variant("killed", len),
        variant("refused", refused),
        variant("empty", lambda _: None, work="relaxing"),
    ]
    ended = []

    found = run(variants, Failing(1, outcome=ChildOutcome(killed=True)), ended.append)

    assert found == [
        Measured(0),
        Measured(failure="planning did not end in time and was killed"),
        Measured(failure="no plan can be made"),
        Measured(failure="relaxing gave no answer"),
    ]
    assert ended == ["jobs", "killed", "refused", "empty"]
