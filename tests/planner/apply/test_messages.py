"""The sentences of an apply that is refused or ends early, in messages.golden.txt; others assert outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuplan.models.cluster import Cluster
from gpuplan.models.errors import PlannerError
from gpuplan.planner.apply.outcome import (
    ApplyOutcome,
    DriftedPlanError,
    FailedAction,
    OtherClusterError,
    UnperformedError,
    raise_unless_complete,
    unfinished_error,
    unrecorded_error,
)
from gpuplan.planner.apply.precondition_checks import DriftItem
from tests.support.builders.build import cluster
from tests.support.output.golden import golden

STOPPED = DriftItem("job a", "no longer runs on n0", "running there", "no such job")
LOST = DriftItem("node n0", "lost 7 GPUs", "8", "1")
FAILED = (FailedAction("a2", "job b cannot start"),)
MANY = tuple(f"start/job-with-a-long-name-{number:02d}" for number in range(25))


def ended(outcome):
    with pytest.raises(PlannerError) as caught:
        raise_unless_complete("7c1e", outcome)
    return caught.value


def errors():
    here = Cluster(nodes=tuple(cluster(3)), name="test")
    yield OtherClusterError("7c1e", here, Cluster(nodes=tuple(cluster(5)), name="prod"))
    yield OtherClusterError("7c1e", Cluster(nodes=tuple(cluster(1))), Cluster(nodes=()))
    yield UnperformedError("7c1e", ("a1", "a2"))
    yield DriftedPlanError("7c1e", (STOPPED,))
    yield DriftedPlanError("7c1e", (STOPPED, LOST))
    yield DriftedPlanError("7c1e", (LOST,) * 22)
    yield unfinished_error("7c1e", ("a1",), ("a2", "a3"))
    yield unfinished_error("7c1e", MANY, ())
    yield unrecorded_error("7c1e", ApplyOutcome(done=("a1",)), PlannerError("the disk is full"))
    yield ended(ApplyOutcome(done=(), remaining=("a1",)))
    yield ended(ApplyOutcome(done=(), failures=FAILED, remaining=("a3",)))
    yield ended(ApplyOutcome(done=("a1",), remaining=("a2", "a3")))
    both = (*FAILED, FailedAction("a4", "node n0 is gone"))
    yield ended(ApplyOutcome(done=("a1",), skipped=("a0",), failures=FAILED, remaining=("a3",)))
    yield ended(ApplyOutcome(done=("a1",), failures=both, remaining=("a3",)))


def test_the_sentences_of_errors():
    found = "\n".join(f"{type(error).__name__} ({error.exit_code})\n{error}\n" for error in errors())

    assert found == golden(Path(__file__).with_name("messages.golden.txt"), found)
