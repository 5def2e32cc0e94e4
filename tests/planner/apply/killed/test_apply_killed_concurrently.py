"""Applies that are killed at any step, half of them with a second one at once that comes through links."""

from __future__ import annotations

import random
import time

import pytest

from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.children import kill_apply
from tests.support.children.kill_assert import CHILDREN, KILLED, assert_recorded, end_state, in_child
from tests.support.doubles.interrupted_apply import preempting
from tests.support.seeds import EVERY_SEED

pytestmark = pytest.mark.slow

SEEDS = range(200 if EVERY_SEED else 6)
PLAN = preempting(100, 200) if EVERY_SEED else preempting(8, 16)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    SimulatedCluster.create(folder / "cluster.db", PLAN.snapshot).close()
    kill_apply.resume(folder, PLAN)
    return end_state(folder)


def linked(folder):
    """The same cluster and log by links to each of them."""
    links = folder / "links"
    links.mkdir()
    for name in ("cluster.db", "audit.jsonl"):
        (links / name).symlink_to(folder / name)
    return links


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_at_any_step_and_resumed_every_apply_comes_to_the_same_end(tmp_path, uninterrupted, seed):
    draw = random.Random(seed)
    SimulatedCluster.create(tmp_path / "cluster.db", PLAN.snapshot).close()
    deed, when = draw.randrange(len(steps_of(PLAN))), draw.choice(["before", "after"])
    first = CHILDREN.Process(target=kill_apply.apply_dying_at_deed, args=(tmp_path, deed, when, PLAN))
    first.start()
    if seed % 2:
        while first.is_alive() and not (tmp_path / "audit.jsonl").exists():
            time.sleep(0.001)
        # Refused while the first one is at work; once that is dead, it does the rest.
        assert in_child(kill_apply.resume_unless_locked, linked(tmp_path), PLAN) == 0
    first.join()
    assert first.exitcode == KILLED

    kill_apply.resume(tmp_path, PLAN)

    assert end_state(tmp_path) == uninterrupted
    assert_recorded(tmp_path, PLAN)
