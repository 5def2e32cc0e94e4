"""Queue trees that are as deep as they have queues are planned, shown and explained like others."""

from __future__ import annotations

import sys
from collections import UserDict

import pytest

from gpuplan.models.policy.policy import Policy
from gpuplan.models.queue import QueueLimits, queue_and_below
from gpuplan.planner.diff.diff import diff
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.explain.queue import explain_queue
from gpuplan.planner.problem_builder.quotas import limited_trees
from gpuplan.planner.render.plan.diff import diff_text
from gpuplan.planner.render.plan.text import plan_text
from gpuplan.planner.render.plan.warnings import missed_guarantees
from gpuplan.planner.render.reports.plan import plan_report
from gpuplan.planner.render.style import Style
from tests.support.builders.build import NOW, job, queue, replica, snapshot

DEPTH = 3 * sys.getrecursionlimit()
LAYOUT = Style(width=80)


@pytest.fixture(scope="module", params=[{"nominal": None}, {"nominal": 0, "lending": 0}], ids=["no", "all"])
def plan(request):
    """Of a job that starts and one that runs at the bottom of a chain of queues, with and without quotas."""
    queues = [queue("q0", nominal=16, guarantee=4)]
    queues += [queue(f"q{n}", parent=f"q{n - 1}", **request.param) for n in range(1, DEPTH)]
    leaf = f"q{DEPTH - 1}"
    jobs = [job("a", gpus=8, queue=leaf, at=[replica(gpus=range(8))]), job("b", gpus=8, queue=leaf)]
    return plan_epoch(snapshot(queues=queues, jobs=jobs), Policy(solvers=()), seed=0, created_at=NOW)


@pytest.mark.slow
def test_a_deep_tree_is_planned_shown_and_explained(plan):
    assert [action.job for action in plan.actions if action.type == "start"] == ["b"]
    assert missed_guarantees(plan) == []
    assert "Plan: 1 to start" in plan_text(plan, LAYOUT, verbose=False)
    assert len(queue_and_below("q1", plan.snapshot.child_queues)) == DEPTH - 1
    assert explain_queue(plan, "q0").running == 2


@pytest.mark.slow
def test_pages_and_tables_of_a_deep_tree_are_not_as_wide_as_it_is_deep(plan):
    text = diff_text(diff(plan), LAYOUT, verbose=True)

    assert max(map(len, text.splitlines())) <= 80
    assert len(plan_report(plan)) < 4_000_000


class _Counted(UserDict):
    """A mapping that counts how often it is asked."""

    asked = 0

    def __getitem__(self, key):
        self.asked += 1
        return super().__getitem__(key)


def test_ordering_a_deep_tree_passes_each_queue_once():
    parents = _Counted({f"q{n}": f"q{n - 1}" if n else None for n in reversed(range(DEPTH))})

    ordered = QueueLimits(parents, {}, {}).leaves_first

    assert ordered[0] == f"q{DEPTH - 1}"
    assert parents.asked <= 2 * DEPTH


def test_the_tree_of_each_queue_is_that_of_its_root():
    queues = [queue("root", nominal=8), queue("b", parent="root"), queue("c", parent="b")]
    queues += [queue("alone"), queue("under", parent="alone")]

    assert limited_trees(snapshot(queues=queues)) == {"root": "root", "b": "root", "c": "root"}
