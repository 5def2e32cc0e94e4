"""Jobs that are handed to gpuplan, and what becomes of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuplan.planner.action_marks import JobSignal, MarkStage
from gpuplan.planner.sources.slurm.cluster.nodes import NODE_LABEL
from gpuplan.planner.sources.slurm.managed import Mark, Marks, is_managed, notice_of
from gpuplan.planner.sources.slurm.slurm import read_slurm_files

RECORDED = Path(__file__).parent / "recorded" / "22.05"


def changed(folder, changes):
    """The recorded cluster with some fields of some jobs changed; a folder to read."""
    for path in RECORDED.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    document = json.loads((folder / "jobs.json").read_text())
    for record in document["jobs"]:
        record.update(changes.get(record["job_id"], {}))
    (folder / "jobs.json").write_text(json.dumps(document))
    return read_slurm_files(folder, managed=True)


def pending_and_running(folder):
    plain = read_slurm_files(RECORDED).snapshot
    waiting = next(
        job.name for job in plain.jobs if job.running is None and not job.held and job.name.isdigit()
    )
    running = next(job.name for job in plain.jobs if job.running is not None and job.name.isdigit())
    return int(waiting), int(running)


def required(found, job):
    """Nodes of which the job needs one."""
    conditions = found.snapshot.job_by_name[str(job)].affinity
    return [node for each in conditions if each.key == NODE_LABEL for node in each.values]


def test_jobs_that_are_not_handed_over_stay_as_they_are(tmp_path):
    found = changed(tmp_path, {})
    assert found.managed == {}
    assert all(job.held for job in found.snapshot.jobs if job.running is None)
    assert not any(job.preemptible for job in found.snapshot.jobs)


@pytest.mark.parametrize("reason", ["JobHeldUser", "job_requeued_in_held_state", "None"])
def test_a_job_that_is_handed_over_waits_for_a_plan(tmp_path, reason):
    waiting, running = pending_and_running(tmp_path)
    ours = {"comment": "gpuplan", "state_reason": reason, "priority": 0 if reason != "None" else 5}
    found = changed(tmp_path, {waiting: ours, running: {"admin_comment": "gpuplan"}})
    jobs = found.snapshot.job_by_name
    assert set(found.managed) == {str(waiting), str(running)}
    assert not jobs[str(waiting)].held
    assert jobs[str(running)].preemptible
    assert any("not held" in each for each in found.notes) == (reason == "None")


def test_the_hold_of_an_operator_is_kept(tmp_path):
    waiting, _ = pending_and_running(tmp_path)
    held = {"comment": "gpuplan", "state_reason": "JobHeldAdmin", "priority": 0}
    assert changed(tmp_path, {waiting: held}).snapshot.job_by_name[str(waiting)].held


@pytest.mark.parametrize(("reservation", "held"), [("gpuplan-old", False), ("operators", True)])
def test_a_job_behind_a_fence_of_gpuplan_itself_asks_for_no_reservation(tmp_path, reservation, held):
    waiting, _ = pending_and_running(tmp_path)
    ours = {"comment": "gpuplan", "resv_name": reservation}
    assert changed(tmp_path, {waiting: ours}).snapshot.job_by_name[str(waiting)].held is held


def test_nodes_that_gpuplan_named_earlier_are_not_required_by_the_user(tmp_path):
    waiting, _ = pending_and_running(tmp_path)
    marks = Marks(marks=(Mark("p:preempt/1", MarkStage.LANDED),), required="")
    named = {"comment": "gpuplan", "required_nodes": "gpu01", "admin_comment": str(marks)}
    assert required(changed(tmp_path, {waiting: named}), waiting) == []
    mine = {"comment": "gpuplan", "required_nodes": "gpu01", "admin_comment": ""}
    assert required(changed(tmp_path, {waiting: mine}), waiting) == ["gpu01"]


def test_the_time_of_submission_is_that_of_the_user(tmp_path):
    waiting, _ = pending_and_running(tmp_path)
    marks = Marks(submitted=1_700_000_000)
    again = {"comment": "gpuplan", "submit_time": 1_800_000_000, "admin_comment": str(marks)}
    job = changed(tmp_path, {waiting: again}).snapshot.job_by_name[str(waiting)]
    assert job.submitted_at.timestamp() == 1_700_000_000


@pytest.mark.parametrize(
    ("eligible", "begin", "counts"),
    [
        # Slurm lets a requeued job wait for two minutes.
        (1_700_000_121, None, False),
        # gpuplan placed it, in vain.
        (1_700_090_000, 1_700_089_999, False),
        (1_700_007_200, None, True),
        (1_700_097_200, 1_700_090_000, True),
    ],
)
def test_an_earliest_start_counts_if_the_user_asked_for_it(tmp_path, eligible, begin, counts):
    waiting, _ = pending_and_running(tmp_path)
    marks = Marks(marks=(Mark("p:preempt/1", MarkStage.LANDED),), submitted=1_600_000_000, begin=begin)
    again = {"comment": "gpuplan", "state_reason": "JobHeldUser", "submit_time": 1_700_000_000}
    again |= {"eligible_time": eligible, "admin_comment": str(marks)}
    job = changed(tmp_path, {waiting: again}).snapshot.job_by_name[str(waiting)]
    assert (job.not_before.timestamp() if job.not_before else None) == (eligible if counts else None)


def test_a_promise_is_read_back(tmp_path):
    waiting, _ = pending_and_running(tmp_path)
    marks = Marks(promise="2026-11-23T20:00:00+00:00@gpu02,gpu04", promise_key="p:promises")
    job = changed(
        tmp_path, {waiting: {"comment": "gpuplan", "admin_comment": str(marks)}}
    ).snapshot.job_by_name[str(waiting)]
    assert [replica.node for replica in job.promise.replicas] == ["gpu02", "gpu04"]
    assert job.promise.start.isoformat() == "2026-11-23T20:00:00+00:00"


@pytest.mark.parametrize(
    ("comment", "expected"),
    [
        ("gpuplan", None),
        ("gpuplan signal=USR1", JobSignal(signal="USR1", seconds=60)),
        ("gpuplan signal=B:SIGTERM@120", JobSignal(signal="TERM", seconds=120, first_only=True)),
        ("gpuplan note=x signal=10@5", JobSignal(signal="10", seconds=5)),
    ],
)
def test_a_comment_may_ask_for_a_signal(comment, expected):
    assert is_managed({"comment": comment})
    assert notice_of({"comment": comment}) == (expected, "")


def test_a_signal_that_is_not_one_is_told():
    notice, strange = notice_of({"comment": "gpuplan signal=USR1;reboot"})
    assert notice is None
    assert "signal=USR1;reboot" in strange


@pytest.mark.parametrize("comment", ["", None, "not gpuplan", "gpuplanner"])
def test_other_comments_hand_nothing_over(comment):
    assert not is_managed({"comment": comment, "admin_comment": None})
