"""Plans of a run: one file each, a link to the last, and no more of them than told."""

from __future__ import annotations

import os

import pytest

from gpuplan.models.errors import PlannerError, TamperedError
from gpuplan.planner.io.atomic_write import hash_path
from gpuplan.planner.plan_file import plan_file
from gpuplan.planner.plan_file.excerpt import read_excerpt
from gpuplan.planner.service.run_files import LATEST, PlanStore
from tests.support.builders.build import job, placement, replica, snapshot
from tests.support.builders.plan_builders import plan_of

PLAN = plan_of(snapshot(jobs=[job("a", gpus=1)]), placement("a", replica(gpus=[0])))
OTHER = plan_of(snapshot(jobs=[job("b", gpus=1)]), placement("b", replica(gpus=[0])))


def names(store):
    return sorted(path.name for path in store.folder.iterdir())


def test_the_latest_plan_is_the_one_saved_last(tmp_path):
    store = PlanStore(tmp_path / "some" / "plans", keep=9)
    assert store.latest() is None

    store.save(PLAN, 1)
    path = store.save(OTHER, 2)

    assert path.name == f"000002-{OTHER.plan_id[:8]}.json"
    assert store.latest() == OTHER
    assert (store.folder / LATEST).resolve() == path.resolve()


@pytest.mark.parametrize("saved", [3, 9, 10, 11, 14])
def test_so_many_plans_are_kept_and_other_files_are_left_alone(tmp_path, saved):
    store = PlanStore(tmp_path, keep=10)
    (tmp_path / "notes.json").write_text("{}")

    for number in range(1, saved + 1):
        store.save(PLAN, number)

    numbers = range(max(1, saved - 9), saved + 1)
    kept = [f"{number:06d}-{PLAN.plan_id[:8]}.json" for number in numbers]
    assert names(store) == sorted([*kept, LATEST, "notes.json"])


def test_numbers_beyond_a_million_are_newer(tmp_path):
    store = PlanStore(tmp_path, keep=1)

    store.save(PLAN, 999_999)
    store.save(PLAN, 1_000_000)

    assert names(store) == [f"1000000-{PLAN.plan_id[:8]}.json", LATEST]


def test_numbers_that_begin_anew_are_newer_than_those_of_the_history_before(tmp_path):
    store = PlanStore(tmp_path, keep=2)
    for number in (998, 999):
        os.utime(store.save(OTHER, number), (1, 1))

    store.save(PLAN, 1)

    assert names(store) == [
        f"000001-{PLAN.plan_id[:8]}.json",
        f"000999-{OTHER.plan_id[:8]}.json",
        LATEST,
    ]
    assert store.latest() == PLAN


def test_the_plan_saved_last_is_kept_whatever_the_clock_says(tmp_path):
    store = PlanStore(tmp_path, keep=2)
    for number in (1, 2):
        os.utime(store.save(OTHER, number), (2**32, 2**32 + number))

    store.save(PLAN, 3)

    assert names(store) == [
        f"000002-{OTHER.plan_id[:8]}.json",
        f"000003-{PLAN.plan_id[:8]}.json",
        LATEST,
    ]
    assert store.latest() == PLAN


def test_what_a_killed_run_was_writing_goes_and_what_others_write_stays(tmp_path):
    drafts = [".000007-0123abcd.json.89abcdef.tmp", f".{LATEST}.89abcdef.tmp"]
    others = [".notes.json.89abcdef.tmp", ".latest.json.swp", "000001-0123abcd.json.tmp"]
    for name in drafts + others:
        (tmp_path / name).write_text("")

    assert names(PlanStore(tmp_path, keep=1)) == sorted(others)


def test_a_latest_plan_that_was_edited_is_refused(tmp_path):
    store = PlanStore(tmp_path, keep=3)
    path = store.save(PLAN, 1)
    path.write_text(path.read_text().replace('"n0"', '"n1"', 1))

    with pytest.raises(TamperedError):
        store.latest()


def test_a_link_that_leads_nowhere_is_no_plan(tmp_path):
    store = PlanStore(tmp_path, keep=3)
    store.save(PLAN, 1).unlink()

    assert store.latest() is None


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(PlannerError, match="plans cannot be kept in"):
        PlanStore(tmp_path / "file" / "plans", keep=1)


def test_the_hash_beside_a_plan_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_file, "MANY_ACTIONS", 0)
    store = PlanStore(tmp_path, keep=1)

    first, second = store.save(PLAN, 1), store.save(PLAN, 2)

    assert not hash_path(first).exists()
    assert hash_path(second).exists()
    assert read_excerpt(tmp_path / LATEST, "a") is not None
