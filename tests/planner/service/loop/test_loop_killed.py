"""Killed with SIGKILL at any point of an epoch, the next run takes up what was begun and loses nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuplan.planner.apply.audit_log import verify_log
from gpuplan.planner.service.history import read_history
from tests.support.children.kill_assert import KILLED, in_child
from tests.support.children.kill_service import POINTS, WORLD, run_dying
from tests.support.doubles.periodic_service import Bench, carried_out

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("point", POINTS)
def test_killed(tmp_path, point):
    assert in_child(run_dying, tmp_path, point) == KILLED

    after = Bench(tmp_path, WORLD)
    assert after.epochs(1)
    records = read_history(tmp_path / "history.db")
    operations = [key for key, _ in after.cluster.operations()]
    running = after.cluster.snapshot().running_placements
    after.close()

    assert [record.number for record in records] == list(range(1, len(records) + 1))
    assert len(operations) == len(set(operations)) == len(running) == 3
    assert carried_out(records) == Counter(key.partition("-")[0] for key in operations)
    assert verify_log(tmp_path / "audit.jsonl").unfinished == b""
