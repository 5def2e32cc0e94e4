"""Killed with SIGKILL at every step and resumed, apply reaches the end it would have reached."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.plan.audit import ActionOutcome, AuditKind
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, cluster, job, node, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of
from tests.support.children import kill_apply
from tests.support.children.kill_assert import CHILDREN, CUTS, KILLED, assert_recorded, end_state, in_child
from tests.support.samples.all_actions import AFTER, CHANGES, PLAN, WORLD
from tests.support.seeds import EVERY_SEED

pytestmark = pytest.mark.slow

STRIDE, APART = (1, 1) if EVERY_SEED else (10, 3)
"""It is killed at every so many of the statements to the cluster, and of the writes and deeds."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    SimulatedCluster.create(folder / "cluster.db", WORLD).close()
    assert in_child(kill_apply.resume, folder) == 0
    assert_recorded(folder, PLAN)
    live, operations = end_state(folder)
    assert live.running_placements == AFTER
    return live, operations


@pytest.fixture
def folder(tmp_path):
    SimulatedCluster.create(tmp_path / "cluster.db", WORLD).close()
    return tmp_path


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("write", range(0, len(CHANGES) + 1, APART))
def test_killed_in_a_write_to_the_log(folder, uninterrupted, write, cut):
    assert in_child(kill_apply.apply_dying_at_write, folder, write, cut) == KILLED

    assert in_child(kill_apply.resume, folder) == 0
    assert end_state(folder) == uninterrupted
    assert_recorded(folder, PLAN)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("deed", range(0, len(CHANGES), APART))
def test_killed_before_or_after_a_deed(folder, uninterrupted, deed, when):
    assert in_child(kill_apply.apply_dying_at_deed, folder, deed, when) == KILLED

    assert in_child(kill_apply.resume, folder) == 0
    assert end_state(folder) == uninterrupted
    assert_recorded(folder, PLAN)


def test_killed_before_statements_to_the_cluster_all_along(tmp_path, uninterrupted):
    for statement in range(0, 1000, STRIDE):
        folder = tmp_path / str(statement)
        folder.mkdir()
        SimulatedCluster.create(folder / "cluster.db", WORLD).close()
        ended = in_child(kill_apply.apply_dying_at_statement, folder, statement)
        if ended == 0:
            break
        assert ended == KILLED
        assert in_child(kill_apply.resume, folder) == 0
        assert end_state(folder) == uninterrupted
        assert_recorded(folder, PLAN)
    assert ended == 0
    assert statement > len(CHANGES) * 8


@pytest.mark.parametrize("cut", CUTS)
def test_killed_and_killed_again_while_resuming(folder, uninterrupted, cut):
    assert in_child(kill_apply.apply_dying_at_write, folder, 1, "half") == KILLED
    assert in_child(kill_apply.apply_dying_at_write, folder, 0, cut, resume=True) == KILLED
    assert in_child(kill_apply.apply_dying_at_write, folder, 1, cut, resume=True) == KILLED

    assert in_child(kill_apply.resume, folder) == 0
    assert end_state(folder) == uninterrupted
    assert_recorded(folder, PLAN)


def test_an_action_done_but_not_recorded_is_recorded_as_skipped(folder):
    in_child(kill_apply.apply_dying_at_deed, folder, 1, "after")

    in_child(kill_apply.resume, folder)

    outcomes = {record.action: record.outcome for record in AuditLog(folder / "audit.jsonl").records()}
    first, second, *others = (outcomes[change.id] for change in CHANGES)
    assert (first, second, set(others)) == (ActionOutcome.DONE, ActionOutcome.SKIPPED, {ActionOutcome.DONE})


def test_a_half_written_record_is_told_of_in_the_log(folder):
    in_child(kill_apply.apply_dying_at_write, folder, 1, "half")

    in_child(kill_apply.resume, folder)

    kinds = [record.kind for record in AuditLog(folder / "audit.jsonl").records()]
    assert kinds.count(AuditKind.RECOVERED) == 1


def test_killed_from_outside_again_and_again_until_it_is_through(tmp_path):
    jobs = [job(f"j{number:03}", gpus=1) for number in range(160)]
    world = snapshot(nodes=cluster(20), jobs=jobs)
    places = [
        placement(job_.name, replica(f"n{number // 8}", gpus=[number % 8]))
        for number, job_ in enumerate(jobs)
    ]
    plan = plan_of(world, *places)
    SimulatedCluster.create(tmp_path / "cluster.db", world).close()

    kills = 0
    for attempt in range(100):
        child = CHILDREN.Process(target=kill_apply.resume, args=(tmp_path, plan))
        child.start()
        child.join(0.03 + 0.017 * attempt)
        child.kill()
        child.join()
        if child.exitcode == 0:
            break
        kills += 1

    assert kills >= 2
    assert {placed.job for placed in end_state(tmp_path)[0].running_placements} == {
        job_.name for job_ in jobs
    }
    assert_recorded(tmp_path, plan)


def test_a_creation_killed_leaves_no_cluster_or_a_whole_one_and_can_be_repeated(tmp_path):
    path = tmp_path / "cluster.db"
    missing = 0
    for statement in range(1000):
        ended = in_child(kill_apply.create_dying_at_statement, path, statement)
        if not path.exists():
            missing += 1
            assert ended == KILLED
            SimulatedCluster.create(path, WORLD).close()
        with SimulatedCluster(path) as live:
            assert live.snapshot() == WORLD
        path.unlink()
        if ended == 0:
            break

    assert missing > len(WORLD.jobs)
    assert {left.name for left in tmp_path.iterdir()} <= {
        "cluster.db.lock",
        "cluster.db-wal",
        "cluster.db-shm",
    }


def test_a_creation_killed_before_the_file_has_its_name_can_be_repeated(tmp_path):
    assert in_child(kill_apply.create_dying_before_its_name, tmp_path / "cluster.db") == KILLED
    assert not (tmp_path / "cluster.db").exists()

    with SimulatedCluster.create(tmp_path / "cluster.db", WORLD) as live:
        assert live.snapshot() == WORLD


def test_a_clock_killed_while_it_moves_has_moved_or_not(tmp_path):
    jobs = [
        job(f"j{number}", gpus=1, at=[replica("n0", gpus=[number])], expected_duration="61m")
        for number in range(3)
    ]
    soon = node("n1", ready_at=NOW + timedelta(minutes=1))
    world = snapshot(nodes=[node("n0"), soon], jobs=jobs)
    seen = set()
    for statement in range(100):
        path = tmp_path / f"{statement}.db"
        SimulatedCluster.create(path, world).close()
        ended = in_child(kill_apply.advance_dying_at_statement, path, statement, 120)
        with SimulatedCluster(path) as live:
            found = live.snapshot()
            ready = found.cluster.node_by_name["n1"].ready_at is None
            seen.add((found == world, len(found.jobs), len(live.finished()), ready))
        if ended == 0:
            break

    assert seen == {(True, 3, 0, False), (False, 0, 3, True)}
