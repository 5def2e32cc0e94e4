"""Facts of hosts in a run: read in each epoch, and a host that cannot be used ends nothing."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.planner.service.host_files import HostFiles
from gpuplan.planner.sources.files import snapshot_text
from tests.support.builders.build import NOW, cluster, node, snapshot

BASE = snapshot(nodes=cluster(3, gpu_memory_mib=0))


@pytest.fixture
def hosts(tmp_path):
    """A folder with a reading of n0, in which a GPU is faulty."""
    folder = tmp_path / "hosts"
    folder.mkdir()
    write(folder, "n0", faulty={3})
    return folder


def write(folder, name, *, count=8, faulty=(), taken_at=NOW):
    details = [
        Gpu(index=index, uuid=f"GPU-{index}", healthy=index not in faulty, fault="smoke" * (index in faulty))
        for index in range(count)
    ]
    reading = snapshot(nodes=[node(name, gpus=count, details=details)], queues=[], taken_at=taken_at)
    (folder / f"{name}.json").write_text(snapshot_text(reading))


def faulty(world):
    return {
        (each.name, gpu.index) for each in world.cluster.nodes for gpu in each.gpus.details if not gpu.healthy
    }


def notes(caplog):
    found = [record.gpuplan_fields["note"] for record in caplog.records if record.message == "host"]
    caplog.clear()
    return found


def test_without_files_a_snapshot_stays_as_it_is():
    assert HostFiles(()).merged(BASE) is BASE


def test_files_are_read_again_in_each_epoch_and_a_note_is_told_once(hosts, caplog):
    files = HostFiles((hosts,))

    assert faulty(files.merged(BASE)) == {("n0", 3)}
    assert len(notes(caplog)) == 1
    write(hosts, "n0", faulty={3, 4})
    assert faulty(files.merged(BASE)) == {("n0", 3), ("n0", 4)}
    assert ["GPU 4" in note for note in notes(caplog)] == [True]
    files.merged(BASE)
    assert notes(caplog) == []


def test_the_age_of_a_reading_is_told_once_as_it_grows(hosts, caplog):
    files = HostFiles((hosts,))
    for minutes in (5, 20, 30):
        files.merged(snapshot(nodes=cluster(3, gpu_memory_mib=0), taken_at=NOW.replace(minute=minutes)))

    assert sum("older" in note for note in notes(caplog)) == 1


def test_a_host_that_contradicts_the_cluster_takes_no_new_jobs(hosts, caplog):
    write(hosts, "n1", count=4)
    write(hosts, "n9")

    merged = HostFiles((hosts,)).merged(BASE)

    assert [each.name for each in merged.cluster.nodes if each.cordoned] == ["n1"]
    assert faulty(merged) == {("n0", 3)}
    assert merged.cluster.node_by_name["n1"].gpus == BASE.cluster.node_by_name["n1"].gpus
    assert len(notes(caplog)) == 3


def test_files_that_cannot_be_read_are_told_and_left_out(hosts, tmp_path, caplog):
    (hosts / "n1.json").write_text("{")
    empty = tmp_path / "empty"
    empty.mkdir()

    merged = HostFiles((empty, hosts, tmp_path / "none.json")).merged(BASE)

    assert faulty(merged) == {("n0", 3)}
    assert len(notes(caplog)) == 4
