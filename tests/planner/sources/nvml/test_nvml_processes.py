"""Processes on GPUs count as running jobs of others."""

from __future__ import annotations

import os
import random
from datetime import UTC, datetime

import pytest

from gpuplan.models.placement import MigSlice
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.sources.nvml.nvml import owner_of


def held(reading):
    return {
        job.name: [(each.index, each.start if isinstance(each, MigSlice) else None) for each in replica.gpus]
        for job in reading.snapshot.jobs
        for replica in job.running.replicas
    }


def test_a_process_holds_its_gpus_whole_and_is_never_disturbed(machine, read):
    for gpu in (0, 1, 4):
        machine.add_process(gpu, 100)

    reading = read(users={100: "ann"})

    (job,) = reading.snapshot.jobs
    assert (job.name, job.user, job.queue, job.preemptible) == ("gpu01/pid-100", "ann", "foreign", False)
    assert held(reading) == {"gpu01/pid-100": [(0, None), (1, None), (4, None)]}
    assert job.running.started_at == datetime(2026, 11, 20, 9, tzinfo=UTC)
    assert [queue.name for queue in reading.snapshot.queues] == ["foreign"]
    assert not list(inconsistencies(reading.snapshot))


def test_processes_that_share_a_gpu_are_one_job(machine, read):
    for gpu, pid in ((0, 30), (1, 30), (1, 20), (2, 20), (5, 40)):
        machine.add_process(gpu, pid)

    reading = read(users={30: "ann", 20: "bob", 40: "eve"})

    assert held(reading) == {
        "gpu01/pid-20": [(0, None), (1, None), (2, None)],
        "gpu01/pid-40": [(5, None)],
    }
    assert len(reading.notes) == 1  # two users share GPUs


def test_a_process_in_a_mig_instance_holds_the_instance(machine, read):
    ids = machine.cut(3, (9, 4), (19, 0))
    machine.add_process(3, 7, instance=ids[0])
    machine.add_process(0, 7)

    reading = read(users={7: "ann"})

    assert held(reading) == {"gpu01/pid-7": [(0, None)], "gpu01/pid-7-mig": [(3, 4)]}
    assert reading.snapshot.job_by_name["gpu01/pid-7-mig"].request.mig == {"3g.40gb": 1}
    assert not list(inconsistencies(reading.snapshot))


def test_a_process_on_an_instance_that_is_gone_is_noted(machine, read):
    machine.cut(3, (9, 4))
    machine.add_process(3, 7, instance=99)

    reading = read()

    assert reading.snapshot.jobs == ()
    assert len(reading.notes) == 1


def test_a_process_that_is_not_visible_has_no_user(machine, read):
    machine.add_process(0, 7)

    reading = read()

    (job,) = reading.snapshot.jobs
    assert (job.user, job.running.started_at) == ("unknown", reading.snapshot.taken_at)
    assert reading.notes == ("process 7: its user and its start are not visible here",)


def test_memory_in_use_without_a_visible_process_is_held_too(machine, read):
    machine.set(4, hidden_mib=20_000)
    machine.set(5, hidden_mib=500)

    reading = read()

    assert held(reading) == {"gpu01/gpu-4": [(4, None)]}
    assert reading.notes == ("GPU 4: 20,000 MiB are in use, and no process is visible here",)
    assert not list(inconsistencies(reading.snapshot))


def test_processes_that_cannot_be_read_close_the_node(machine, read):
    machine.fail("nvmlDeviceGetComputeRunningProcesses_v3", 13)

    reading = read(watch=0.03)

    assert reading.snapshot.cluster.nodes[0].cordoned
    assert len(reading.notes) == 9


def test_a_job_of_others_on_an_unhealthy_gpu_stays(machine, read):
    machine.add_process(0, 7)
    machine.set(0, rows_failed=1)

    losses = survey_damage(read(users={7: "ann"}).snapshot).losses

    assert [(loss.job.name, loss.released) for loss in losses.values()] == [("gpu01/pid-7", False)]


def test_each_place_is_held_once_by_the_job_of_its_processes(make_machine, read):
    random.seed(3)
    for _ in range(40):
        machine = make_machine()
        on = {(random.randrange(8), random.randrange(1, 7)) for _ in range(random.randrange(12))}
        for gpu, pid in on:
            machine.add_process(gpu, pid)
        reading = read(users=dict.fromkeys(range(7), "ann"))

        assert not list(inconsistencies(reading.snapshot))
        places = held(reading)
        job_of = {gpu: name for name, gpus in places.items() for gpu, _ in gpus}
        assert set(job_of) == {gpu for gpu, _ in on}
        for _, pid in on:
            assert len({job_of[gpu] for gpu, other in on if other == pid}) == 1
        assert all(
            f"gpu01/pid-{min(pid for gpu, pid in on if job_of[gpu] == name)}" == name for name in places
        )


def test_the_owner_of_this_process_is_known_and_that_of_none_is_not():
    user, started = owner_of(os.getpid())

    assert user
    assert started < datetime.now(UTC)
    assert owner_of(2**22 + 1) is None


@pytest.mark.parametrize("user", ["DOMAIN\\ann", "ann@example.org", "1000"])
def test_users_have_names_that_a_snapshot_allows(machine, read, user):
    machine.add_process(0, 7)

    (job,) = read(users={7: user}).snapshot.jobs

    assert job.user
