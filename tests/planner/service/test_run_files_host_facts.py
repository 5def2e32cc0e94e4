"""Facts of hosts in a run: read in each epoch, and a host that cannot be used ends nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.errors import PlannerError
from gpuplan.models.health.measurement import Measurement
from gpuplan.planner.service.run_files import HostFacts
from gpuplan.planner.sources.dcgm.merge import GpuTelemetry, Telemetry
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
    assert HostFacts(()).merged(BASE) is BASE


def test_files_are_read_again_in_each_epoch_and_a_note_is_told_once(hosts, caplog):
    files = HostFacts((hosts,))

    assert faulty(files.merged(BASE)) == {("n0", 3)}
    assert len(notes(caplog)) == 1
    write(hosts, "n0", faulty={3, 4})
    assert faulty(files.merged(BASE)) == {("n0", 3), ("n0", 4)}
    assert ["GPU 4" in note for note in notes(caplog)] == [True]
    files.merged(BASE)
    assert notes(caplog) == []


def test_the_age_of_a_reading_is_told_once_as_it_grows(hosts, caplog):
    files = HostFacts((hosts,))
    for minutes in (5, 20, 30):
        files.merged(snapshot(nodes=cluster(3, gpu_memory_mib=0), taken_at=NOW.replace(minute=minutes)))

    assert sum("older" in note for note in notes(caplog)) == 1


def test_a_host_that_contradicts_the_cluster_takes_no_new_jobs(hosts, caplog):
    write(hosts, "n1", count=4)
    write(hosts, "n9")

    merged = HostFacts((hosts,)).merged(BASE)

    assert [each.name for each in merged.cluster.nodes if each.cordoned] == ["n1"]
    assert faulty(merged) == {("n0", 3)}
    assert merged.cluster.node_by_name["n1"].gpus == BASE.cluster.node_by_name["n1"].gpus
    assert len(notes(caplog)) == 3


def test_files_that_cannot_be_read_are_told_and_left_out(hosts, tmp_path, caplog):
    (hosts / "n1.json").write_text("{")
    empty = tmp_path / "empty"
    empty.mkdir()

    merged = HostFacts((empty, hosts, tmp_path / "none.json")).merged(BASE)

    assert faulty(merged) == {("n0", 3)}
    assert len(notes(caplog)) == 4


def later(minutes, **more):
    return snapshot(nodes=cluster(1), taken_at=NOW + timedelta(minutes=minutes), **more)


def look(index=0, period=30, **more):
    return Measurement(node="n0", index=index, period=period, **more)


def test_what_each_look_sees_lasts_from_epoch_to_epoch():
    facts = HostFacts()
    hot = {"measured": [look(hot={91: 30}, idle={0: 30})]}

    seen = [facts.merged(later(minute, **hot)).measured[0] for minute in (0, 1, 5)]

    assert [each.hot_for(91) for each in seen] == [30, 90, 330]
    assert [each.idle_for(0) for each in seen] == [30, 90, 330]


def test_a_look_that_is_read_again_is_no_other_look():
    facts = HostFacts()
    twice = [facts.merged(later(0, measured=[look(hot={91: 30})])).measured[0].hot_for(91) for _ in range(2)]

    assert twice == [30, 30]


def test_nothing_lasts_over_a_long_time_without_a_look_or_a_look_that_does_not_see_it():
    facts = HostFacts()
    for minute, hot in ((0, {91: 30}), (11, {91: 30}), (12, {}), (13, {91: 30})):
        found = facts.merged(later(minute, measured=[look(hot=hot)])).measured[0]
        assert found.hot == hot


def test_files_of_hosts_have_looks_too(tmp_path):
    facts = HostFacts((tmp_path / "n0.json",))
    for minutes in (0, 2, 2):
        text = snapshot_text(later(minutes, queues=[], measured=[look(hot={91: 30})]))
        (tmp_path / "n0.json").write_text(text)
        found = facts.merged(later(2))

    assert found.measured[0].hot_for(91) == 150


class Server:
    """Telemetry of n0, or an error."""

    def __init__(self):
        self.error = ""

    def __call__(self, url, at):
        if self.error:
            raise PlannerError(self.error)
        gpus = (GpuTelemetry(host="n0", index=3, uuid="GPU-3", model="", period=900, uncorrectable=1),)
        return Telemetry(url, at, gpus, ())


def test_telemetry_counts_while_a_server_does_not_answer_but_not_for_long(caplog):
    server = Server()
    facts = HostFacts(urls=("http://p:9090",), read=server)
    assert facts.merged(later(0)).measured[0].uncorrectable == 1
    notes(caplog)
    server.error = "http://p:9090 does not answer: refused.\nIs Prometheus running there?"

    assert facts.merged(later(15)).measured[0].uncorrectable == 1
    assert ["what it told 15m before counts" in note for note in notes(caplog)] == [True]
    assert facts.merged(later(16)).measured == ()
    assert ["its GPUs are not judged" in note for note in notes(caplog)] == [True]
    server.error = ""
    assert facts.merged(later(17)).measured[0].uncorrectable == 1


def test_a_server_that_never_answered_ends_nothing(caplog):
    server = Server()
    server.error = "no"

    assert HostFacts(urls=("http://p",), read=server).merged(later(0)) == later(0)
    assert len(notes(caplog)) == 1
