"""Tasks in processes of their own: what each came to, and none outlives the run."""

from __future__ import annotations

import os

import pytest

from gpuplan.planner.whatif.runner import Processes, WorkerTask


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

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
