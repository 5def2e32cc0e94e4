"""Functions run in child processes that die by SIGKILL, and what must hold after they were resumed."""

from __future__ import annotations

import multiprocessing
import signal
from collections import Counter

from gpuplan.models.plan.audit import AuditKind
from gpuplan.planner.apply.audit_log import verify_log
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.apply.standing import key_of
from gpuplan.planner.executors.simulated import SimulatedCluster

CHILDREN = multiprocessing.get_context("forkserver")
# Imported once, in the server that the children are forked from.
CHILDREN.set_forkserver_preload(
    [
        "pytest",
        "gpuplan.planner.apply.apply",
        "gpuplan.planner.apply.audit_log",
        "gpuplan.planner.executors.simulated",
        "gpuplan.planner.plan_file.plan_file",
        "tests.support.children.kill_apply",
        "tests.support.children.kill_service",
        "tests.support.children.built_schemas",
    ]
)

KILLED = -signal.SIGKILL


def in_child(function, *arguments, **named):
    """Exit code of a function run in a fresh process."""
    child = CHILDREN.Process(target=function, args=arguments, kwargs=named)
    child.start()
    child.join(60)
    return child.exitcode


def end_state(folder):
    with SimulatedCluster(folder / "cluster.db") as live:
        return live.snapshot(), live.operations()


def assert_recorded(folder, plan):
    """Each step was performed once, and its end is recorded once; the chain is sound."""
    ids = [step.id for step in steps_of(plan)]
    trail = verify_log(folder / "audit.jsonl")
    outcomes = Counter(record.action for record in trail.records if record.kind is AuditKind.OUTCOME)
    _, operations = end_state(folder)
    assert trail.unfinished == b""
    assert outcomes == Counter(ids)
    assert [key for key, _ in operations] == [key_of(plan, step) for step in steps_of(plan)]
    assert trail.records[-1].detail == f"complete: {len(ids)} of {len(ids)} done"


# One write holds begin and the first intent, each further one an outcome and the next intent, the last one
# an outcome and the end.
CUTS = ("nothing", "a byte", "half", "a line", "no end", "all")
