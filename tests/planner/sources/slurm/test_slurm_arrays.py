"""Arrays of tasks, and dependencies on them and on other jobs."""

from __future__ import annotations

import pytest

from gpuplan.models.validation.checks import inconsistencies
from tests.support.harness.slurm_readings import job, pending, read


def test_tasks_of_an_array_that_run_share_nodes_as_slurm_placed_them():
    found = read()

    held = {name: job(found, name).running.replicas[0] for name in ("14_0", "14_1", "14_2", "14_3")}
    assert [(each.node, [gpu.index for gpu in each.gpus]) for each in held.values()] == [
        ("gpu01", [4, 5]),
        ("gpu01", [6, 7]),
        ("gpu02", [4, 5]),
        ("gpu02", [6, 7]),
    ]


def test_pending_tasks_of_an_array_are_jobs_of_their_own():
    names = [each.name for each in read().snapshot.jobs if each.name.startswith("21")]

    assert names == ["21_0", "21_12", "21_4", "21_8"]


def test_a_dependency_on_an_array_is_one_on_each_of_its_tasks():
    waits = job(read(), "19")

    assert [(each.job, each.kind.value) for each in waits.depends_on] == [
        (f"14_{task}", "succeeded") for task in range(4)
    ]
    assert not waits.held


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("afterany:13", {"13": "completed"}),
        ("after:13+0", {"13": "started"}),
        ("afterok:13(unfulfilled),afterany:18(unfulfilled)", {"13": "succeeded", "18": "completed"}),
        ("afterok:13:18", {"13": "succeeded", "18": "succeeded"}),
    ],
)
def test_kinds_of_dependencies(text, kinds):
    waits = job(pending("after", dependency=text), "19")

    assert {each.job: each.kind.value for each in waits.depends_on} == kinds
    assert waits.depends_on_at_least is None


def test_one_of_several_dependencies_may_suffice():
    assert job(pending("after", dependency="afterok:13?afterok:18"), "19").depends_on_at_least == 1


@pytest.mark.parametrize(
    "text",
    [
        *("singleton", "afternotok:13", "afterok:999", "expand:13", "after:13+5", "after:13,afterok:13"),
        *("afterok:21_*?afterok:13", "afterok:13_7", "aftercorr:14_*"),
    ],
)
def test_a_dependency_without_counterpart_holds_the_job(text):
    found = pending("after", dependency=text)

    assert job(found, "19").held
    assert [note for note in found.notes if note.startswith("job 19: ")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("afterok:21_*(unfulfilled)", ["21_0", "21_12", "21_4", "21_8"]),
        ("afterok:21_4(unfulfilled)", ["21_4"]),
        ("afterok:14_2(unfulfilled)", ["14_2"]),
        ("afterok:23(unfulfilled)", ["23", "24"]),
    ],
)
def test_a_dependency_names_tasks_of_arrays_that_wait_one_task_or_all_parts(text, names):
    found = pending("after", dependency=text)

    assert sorted(each.job for each in job(found, "19").depends_on) == names
    assert not list(inconsistencies(found.snapshot))


def test_a_dependency_on_a_job_that_is_over_holds_the_job():
    changes = {"train": {"job_state": "FAILED"}, "after": {"dependency": "afterok:13(failed)"}}

    found = read(jobs=lambda each: changes.get(each["name"], {}))

    assert job(found, "19").held
    assert not list(inconsistencies(found.snapshot))


@pytest.mark.parametrize("text", ["0,2,4-5,6...", "0,2,4-5,..."])
def test_a_list_of_tasks_that_squeue_cut_off_is_held_and_noted(text):
    found = pending("later", array_task_string=text, partition="low")

    tasks = [each for each in found.snapshot.jobs if each.name.startswith("21_")]
    assert [each.name for each in tasks] == ["21_0", "21_2", "21_4", "21_5"]
    assert all(each.held for each in tasks)
    assert any("SLURM_BITSTR_LEN" in each for each in found.notes)


@pytest.mark.parametrize(("limit", "held"), [(5, 3), (4, 4), (6, 2), (9, 0)])
def test_only_tasks_within_the_limit_of_their_array_may_start(limit, held):
    """Four tasks of array 14 run, and four more wait."""
    waits = {"array_job_id": 14, "array_task_string": f"4-7%{limit}", "partition": "low"}
    waits |= {"state_reason": "Resources", "priority": 1}

    found = pending("later", **waits)

    tasks = [job(found, f"14_{task}") for task in range(4, 8)]
    assert [each.held for each in tasks] == [False] * (4 - held) + [True] * held
    assert any(f"limit is {limit} tasks" in each for each in found.notes) == bool(held)


def test_a_single_task_beyond_the_limit_of_its_array_is_held():
    found = pending("after", array_job_id=14, array_task_id=9, state_reason="JobArrayTaskLimit")

    assert job(found, "14_9").held
