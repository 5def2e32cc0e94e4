"""Reservations of Slurm: which nodes they close, for which jobs, and when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.sources.slurm.cluster.reservations import calendar_of, reservations_of
from gpuplan.planner.sources.slurm.slurm import read_slurm_files
from tests.planner.sources.slurm.test_slurm import RECORDED, job, read

NOW = 1_795_470_000
"""2026-11-23 21:40 UTC, a Monday."""


def line(name="r", begins=0, ends=3600, nodes="gpu03", flags="", users="root", **more):
    """A reservation from some seconds after now."""
    fields = {"ReservationName": name, "StartTime": NOW + begins, "EndTime": NOW + ends, "Nodes": nodes}
    fields |= {"Flags": flags, "Users": users} | more
    return " ".join(f"{key}={value}" for key, value in fields.items())


def calendar(*lines, known=("gpu01", "gpu02", "gpu03", "gpu04")):
    notes = []
    now = datetime.fromtimestamp(NOW, tz=UTC)
    found = calendar_of(reservations_of("\n".join(lines)), known, now, lambda *note: notes.append(note))
    return found, notes


def slurm(*lines, **jobs):
    """The recorded cluster at that time with reservations, and changes of jobs by name."""
    return read(
        reservations="\n".join(lines),
        jobs=lambda each: {"last_sched_evaluation": NOW} | jobs.get(each["name"], {}),
    )


def test_a_recorded_cluster_has_its_reservations_and_no_fences():
    found = read_slurm_files(RECORDED / "22.05-accounts")

    assert [(each.name, each.nodes) for each in found.snapshot.cluster.reservations] == [
        ("daily", ("gpu01",)),
        ("maint1", ("cloud02", "gpu03")),
        ("team", ("gpu04",)),
    ]
    assert [each.name for each in found.fences] == ["gpuplan-p7"]
    assert not list(inconsistencies(found.snapshot))
    assert not survey_damage(found.snapshot).losses
    assert not [node.name for node in found.snapshot.cluster.nodes if node.cordoned]


def test_a_job_in_a_reservation_may_use_its_nodes_within_its_time():
    found = slurm(line("team", 600, 7200), after={"resv_name": "team"})

    after = job(found, "19")
    assert not after.held
    assert after.labels["slurm/reservation.team"] == "true"
    assert ("slurm/node", ("gpu03",)) in [(each.key, each.values) for each in after.affinity]
    assert after.not_before.timestamp() == NOW + 600
    assert (after.deadline.timestamp(), after.hard_deadline) == (NOW + 7200, True)


def test_of_several_reservations_a_job_may_use_all_nodes_in_their_common_time():
    lines = (line("a", 0, 7200), line("b", 600, 3600, nodes="gpu04"))

    after = job(slurm(*lines, after={"resv_name": "a,b"}), "19")

    assert {"slurm/reservation.a", "slurm/reservation.b"} <= after.labels.keys()
    assert ("slurm/node", ("gpu03", "gpu04")) in [(each.key, each.values) for each in after.affinity]
    assert (after.not_before.timestamp(), after.deadline.timestamp()) == (NOW + 600, NOW + 3600)


def test_a_job_in_a_flexible_reservation_may_run_elsewhere_and_at_other_times():
    after = job(slurm(line("team", 600, 7200, flags="FLEX"), after={"resv_name": "team"}), "19")

    assert "slurm/reservation.team" in after.labels
    assert (after.not_before, after.deadline) == (None, None)
    assert "slurm/node" not in [each.key for each in after.affinity]


def test_a_job_in_a_reservation_that_is_not_there_is_held():
    found = slurm(line("team"), after={"resv_name": "gone"})

    assert job(found, "19").held
    assert "gone" in job(found, "19").hold_reason


def test_a_job_in_a_fence_is_as_it_was_before():
    before = job(slurm(), "19")

    assert job(slurm(line("gpuplan-7"), after={"resv_name": "gpuplan-7"}), "19") == before
    assert job(slurm(after={"resv_name": "gpuplan-7"}), "19") == before


def test_jobs_of_the_owners_are_in_a_magnetic_reservation_without_naming_it():
    lines = (
        line("mine", flags="MAGNETIC"),
        line("theirs", flags="MAGNETIC", users="eve"),
        line("both", flags="MAGNETIC", Accounts="physics"),
    )

    labels = job(slurm(*lines), "19").labels
    assert [key for key in labels if key.startswith("slurm/reservation.")] == ["slurm/reservation.mine"]


@pytest.mark.parametrize(("begins", "stays"), [(-600, True), (60, True), (10**6, False)])
def test_a_running_job_stays_on_reserved_nodes_as_slurm_lets_it(begins, stays):
    maintenance = line("maint", begins, 2 * 10**6, nodes="gpu01", flags="MAINT,IGNORE_JOBS")
    found = slurm(maintenance, train={"start_time": NOW - 600})

    gang = job(found, "13")
    assert ("slurm/reservation.maint" in gang.labels) == stays
    assert gang.preemptible != stays
    assert any(note.startswith("job 13: it runs on nodes of reservation") for note in found.notes) == stays


def test_a_node_that_is_reserved_is_cordoned_only_if_its_reservation_is_not_known():
    states = {"state": "idle", "state_flags": ["RESERVED"]}

    def cordoned(*lines):
        found = read(
            reservations="\n".join(lines),
            nodes=lambda each: states if each["name"] == "gpu03" else {},
            jobs=lambda _: {"last_sched_evaluation": NOW},
        )
        return found.snapshot.cluster.node_by_name["gpu03"].cordoned

    assert cordoned()
    assert cordoned(line(nodes="gpu02"))
    assert not cordoned(line())
    assert not cordoned(line("gpuplan-7"))


@pytest.mark.parametrize(
    ("flag", "begins", "cron"),
    [
        ("DAILY", 600, "50 21 * * *"),
        ("DAILY", -600, "30 21 * * *"),
        ("HOURLY", 630, "50 * * * *"),
        ("WEEKLY", 600, "50 21 * * 1"),
        ("WEEKLY", 86400, "40 21 * * 2"),
        ("DAILY", 10 * 86400, None),
        ("WEEKDAY", 600, None),
    ],
)
def test_reservations_that_recur(flag, begins, cron):
    (found,), notes = calendar(line(begins=begins, ends=begins + 3000, flags=flag))

    assert found.cron == cron
    assert bool(notes) == (cron is None)
    spans = list(found.spans(datetime.fromtimestamp(NOW, tz=UTC), 10**6))
    assert (begins - begins % 60, begins + 3000) in spans[:2]


def test_a_running_job_that_is_overdue_may_stay():
    found = slurm(line("maint", 10**6, 2 * 10**6, nodes="gpu01"))

    assert "slurm/reservation.maint" in job(found, "13").labels


def test_what_of_a_reservation_is_not_read_is_noted():
    lines = (
        line("floats", flags="TIME_FLOAT,REPLACE_DOWN"),
        line("cores") + " NodeName=gpu03 CoreIDs=0-3",
        line("hidden", nodes="gpu03,secret1"),
        line("licenses", nodes="(null)"),
        line("over", -7200, -3600),
    )

    found, notes = calendar(*lines)

    assert [each.name for each in found] == ["floats", "cores", "hidden"]
    assert {subject for subject, _ in notes} == {
        *("reservation floats", "reservation cores", "reservation hidden", "reservation licenses")
    }


def test_reservations_in_json():
    record = '{"name": "r", "start_time": {"set": true, "infinite": false, "number": 5}, "end_time": 9, '
    record += '"node_list": "gpu[01-02]", "flags": ["MAINT"], "users": "a,b", "accounts": ""}'

    (found,) = reservations_of('{"reservations": [' + record + "]}")

    assert (found.begins, found.ends, found.nodes, found.users) == (5, 9, ("gpu01", "gpu02"), ("a", "b"))


def test_times_without_seconds_since_1970_are_local_ones():
    (found,) = reservations_of("ReservationName=r StartTime=2026-11-23T21:40:00 EndTime=2026-11-23T22:40:00")

    assert found.ends - found.begins == 3600
    assert found.begins == datetime(2026, 11, 23, 21, 40).astimezone().timestamp()
