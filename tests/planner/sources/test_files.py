"""Snapshots from files, and back: what is put together, and what is written."""

from __future__ import annotations

import io
import json
import sys
from textwrap import dedent

from gpuplan.models.cluster import Gpu, MigInstance, Taint
from gpuplan.models.placement import Running
from gpuplan.planner.sources.files import load_snapshot, snapshot_text, write_scenario
from tests.support.builders.build import NOW, cluster, job, node, pool, queue, replica, snapshot
from tests.support.samples.small_document import BASE, JOB

RICH = snapshot(
    nodes=[
        *cluster(2, zone="z1", rack="7", labels={"team": "blau, «grün»"}, price_per_hour=12.5),
        node("m0", taints=(Taint(key="dedicated", value="x"),), cordoned=True),
        node("c0", gpus=0, cpus=11.5),
        node("g0", model="A100-80GB").model_copy(
            update={
                "gpus": node("g0", model="A100-80GB").gpus.model_copy(
                    update={"details": (Gpu(index=3, mig=(MigInstance(profile="3g.40gb", start=4),)),)}
                )
            }
        ),
    ],
    queues=[queue(nominal=8.5, borrowing=2, lending=0.5), queue("r", parent="q", **{"H100-80GB": 4})],
    jobs=[
        job("run", gpus=2, cpus=1.5, at=[replica("n0", gpus=[0, 1])]),
        job("share", milli=250, queue="r", expected_duration="90s", held=True, weight="500m"),
        job("gang", gpus=8, replicas=(2, 4), deadline=NOW, gpu_models={"H100-80GB": 1, "A100-80GB": 0.3}),
        job("reader", datasets=["d"], qos="burstable", spread={"max": 2}, checkpoint_duration="2m"),
    ],
    pools=(pool("spot", provisioning="5m", interruptions_per_hour=0.5), pool("base", least=1)),
    overcommit={"burstable": {"cpus": 1.5}},
    datasets=[{"name": "e"}, {"name": "d", "zones": {"z1": 0.5}, "elsewhere": 2}],
    rack_power=[{"rack": "7", "zone": "z1", "watts": 9000}],
)


def test_a_snapshot_comes_back_from_its_text(put):
    put(s__json=snapshot_text(RICH), s__yaml=snapshot_text(RICH))

    assert load_snapshot("s.json") == RICH
    assert load_snapshot("s.yaml") == RICH
    assert load_snapshot("s.json").fingerprint() == RICH.fingerprint()


def test_the_text_has_one_line_for_each_entry_of_a_list():
    lines = snapshot_text(RICH).splitlines()

    entries = [json.loads(line.strip().rstrip(",")) for line in lines if line.startswith("    {")]
    assert [entry.get("name", entry.get("rack")) for entry in entries] == [
        *("base", "spot"),
        *("d", "e"),
        "7",
        *("c0", "g0", "m0", "n0", "n1"),
        *("q", "r"),
        *("gang", "reader", "run", "share"),
    ]


def test_the_text_leaves_defaults_out_and_says_its_format():
    text = snapshot_text(snapshot(nodes=[node(gpus=0, cpus=4)], jobs=[]))

    assert text == dedent(
        """\
        {
          "format_version": "1.0",
          "taken_at": "2026-11-20T12:00:00Z",
          "cluster": {"nodes": [
            {"name": "n0", "cpus": 4, "memory_mib": 131072}
          ]},
          "queues": [
            {"name": "q"}
          ],
          "jobs": []
        }
        """
    )


def test_the_text_does_not_depend_on_the_order_of_a_snapshot():
    lists = ("nodes", "pools", "datasets", "rack_power")
    turned = {name: getattr(RICH.cluster, name)[::-1] for name in lists}
    gang = job("gang", gpus=1, replicas=2, at=[replica("n1", gpus=[0]), replica("n0", gpus=[0])])
    world = RICH.model_copy(update={"jobs": (*RICH.jobs[1:], gang)})
    backwards = Running(started_at=gang.running.started_at, replicas=gang.running.replicas[::-1])
    shuffled = world.model_copy(
        update={
            "cluster": world.cluster.model_copy(update=turned),
            "jobs": (gang.model_copy(update={"running": backwards}), *RICH.jobs[:0:-1]),
            "queues": world.queues[::-1],
        }
    )

    assert snapshot_text(shuffled) == snapshot_text(world)
    assert shuffled.canonical().fingerprint() == world.canonical().fingerprint()


def test_a_snapshot_comes_back_from_a_scenario_folder(tmp_path):
    write_scenario(RICH, tmp_path / "new" / "folder")

    assert load_snapshot(str(tmp_path / "new" / "folder")) == RICH


def test_the_files_of_a_directory_make_one_snapshot(put):
    put(
        a__yaml="taken_at: 2026-11-20T12:00:00Z\ncluster: {name: alps, nodes: [{name: n1}]}\n",
        b__yml="cluster: [{name: n0}]\n---\nqueues: [{name: q}]\n---\n",
        c__json='{"queues": [{"name": "p"}], "jobs": []}',
    )

    found = load_snapshot(".")

    assert found.cluster.name == "alps"
    assert [node.name for node in found.cluster.nodes] == ["n0", "n1"]
    assert [queue.name for queue in found.queues] == ["p", "q"]


def test_the_sections_of_a_cluster_may_stand_in_several_files(put):
    put(
        a__yaml="taken_at: 2026-11-20T12:00:00Z\nqueues: [{name: q}]\n"
        "cluster: {pools: [{name: b, template: {name: b}, max: 1}], overcommit: {burstable: {cpus: 2}}}\n",
        b__yaml="cluster: [{name: n0, rack: r, pool: a}]\n",
        c__yaml="cluster: {pools: [{name: a, template: {name: a}, max: 1}], datasets: [{name: d}]}\n",
        d__yaml="cluster: {rack_power: [{rack: r, watts: 5}]}\n",
    )

    found = load_snapshot(".").cluster

    assert [pool.name for pool in found.pools] == ["a", "b"]
    assert found.overcommit["burstable"].cpu_milli == 2000
    assert ([one.name for one in found.datasets], [one.watts for one in found.rack_power]) == (["d"], [5])


def test_other_files_of_a_directory_are_passed_over(put, tmp_path):
    others = (
        "policy.yaml",
        "profile.yml",
        "scenario.drain.yaml",
        "plan.json",
        "README.md",
        ".jobs.yaml",
        "run.sh",
    )
    put(base__yaml=BASE, **{name.replace(".", "__"): "not: [a snapshot" for name in others})
    (tmp_path / "more.yaml").mkdir()

    assert [node.name for node in load_snapshot(".").cluster.nodes] == ["n0", "n1"]


def test_one_file_is_read_whatever_its_name(put):
    put(plan__json=snapshot_text(RICH))

    assert load_snapshot("plan.json") == RICH


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(snapshot_text(RICH).encode())))

    assert load_snapshot("-") == RICH


def test_short_forms_are_read(put):
    put(s__yaml=BASE + f"jobs:\n- {JOB % 'replicas: 4, gpu_models: [H100-80GB], request: {gpus: 8}'}\n")

    (found,) = load_snapshot("s.yaml").jobs

    assert (found.gang.minimum, found.gang.maximum, found.gpu_models) == (4, 4, {"H100-80GB": 1000})


def test_what_the_loader_returns_is_canonical(put):
    put(s__yaml=BASE)

    found = load_snapshot("s.yaml")

    assert found == found.canonical()


def calls_to_read(name):
    """Calls of functions, which depend on no clock."""
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        found = load_snapshot(name)
    finally:
        sys.setprofile(None)
    return calls, found


def test_reading_takes_time_in_proportion_to_the_jobs(put):
    def world(jobs):
        return snapshot(
            nodes=cluster(100, rack="r1"),
            jobs=[
                job(f"j{number}", milli=500, cpus=11.3, memory_gib=4, gpu_models={"H100-80GB": 1})
                for number in range(jobs)
            ],
        )

    put(small__json=snapshot_text(world(500)), big__json=snapshot_text(world(1000)))

    small, _ = calls_to_read("small.json")
    big, found = calls_to_read("big.json")

    assert found == world(1000)
    assert big <= 2.1 * small
