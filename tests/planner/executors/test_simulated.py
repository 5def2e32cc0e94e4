"""The simulated cluster: durable, with its own clock, and trusting no plan."""

from __future__ import annotations

import sqlite3
import threading
from datetime import timedelta

import pytest

from gpuplan.models.cluster import (
    Cluster,
    Dataset,
    Gpu,
    MigInstance,
    NodeGpus,
    Overcommit,
    QosClass,
    RackPower,
    Taint,
)
from gpuplan.models.errors import PlannerError
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import MigSlice, Replica
from gpuplan.planner.executors.interface import ExecutionError
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.io.file_lock import LockedError
from tests.support.builders.build import MODEL, NOW, cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.plan_builders import start
from tests.support.samples.all_actions import pool
from tests.support.samples.apply_world import landed


def world():
    """Two nodes; b runs on two GPUs of n0 for another half an hour; a, gang and half wait."""
    return snapshot(
        nodes=cluster(2, rack="r1"),
        jobs=[
            job("a", gpus=4, cpus=8, memory_gib=64, expected_duration="10m"),
            job("b", gpus=2, at=[replica("n0", gpus=[0, 1])], expected_duration="90m"),
            job("gang", gpus=8, replicas=(2, 3)),
            job("half", milli=500),
        ],
        queues=[queue("q", nominal=16), queue("child", parent="q", nominal=4)],
    )


ON_N0 = placement("a", replica("n0", gpus=[2, 3, 4, 5], cpus=8, memory_gib=64))


@pytest.fixture
def live(tmp_path):
    with SimulatedCluster.create(tmp_path / "cluster.db", world()) as cluster_:
        yield cluster_


def test_a_new_cluster_is_as_the_snapshot_it_was_made_from(live):
    assert live.snapshot() == world()
    assert live.snapshot().fingerprint() == world().fingerprint()


def test_all_that_is_true_of_the_cluster_as_a_whole_is_kept(tmp_path):
    whole = Cluster(
        name="west",
        nodes=(node("n0"), node("cloud-1", pool="cloud", ready_at=NOW + timedelta(minutes=5))),
        pools=(pool("cloud", most=3, least=1), pool("spare")),
        overcommit={QosClass.BURSTABLE: Overcommit(cpus=2, memory=1.5)},
        datasets=(Dataset(name="web", zones={"z1": 0.5}, elsewhere=2.0),),
        rack_power=(RackPower(rack="r1", watts=9000),),
    )
    given = snapshot().model_copy(update={"cluster": whole})
    with SimulatedCluster.create(tmp_path / "c.db", given) as live:
        assert live.snapshot() == given.canonical()


def test_a_cluster_is_there_for_the_next_process(live):
    live.begin(start("a1", ON_N0), "p:a1")

    with SimulatedCluster(live.path) as again:
        assert again.snapshot() == live.snapshot()
        assert landed(again, ["p:a1"])
        assert again.identity == live.identity


def test_an_existing_cluster_is_never_overwritten(live):
    with pytest.raises(PlannerError, match="exists already"):
        SimulatedCluster.create(live.path, snapshot())
    assert live.snapshot() == world()


def test_each_cluster_made_has_an_identity_of_its_own(live, tmp_path):
    with SimulatedCluster.create(tmp_path / "other.db", world()) as other:
        assert other.identity != live.identity


def test_a_started_job_runs_from_the_clocks_now_on_its_places(live):
    live.advance(60)

    live.begin(start("a1", ON_N0), "p:a1")

    running = live.snapshot().job_by_name["a"].running
    assert running.started_at == NOW + timedelta(minutes=1)
    assert running.replicas == ON_N0.replicas
    assert live.snapshot().taken_at == NOW + timedelta(minutes=1)


def test_an_action_is_done_once_for_its_key(live):
    live.begin(start("a1", ON_N0), "p:a1")
    once = live.snapshot()
    live.advance(3600)

    live.begin(start("a1", ON_N0), "p:a1")

    assert live.operations() == (("p:a1", "job a"),)
    assert "a" not in live.snapshot().job_by_name
    assert once.job_by_name["a"].running is not None


def test_what_was_not_done_is_not_performed(live):
    live.begin(start("a1", ON_N0), "p:a1")

    assert not landed(live, ["p:a2"])


def test_two_shares_of_one_gpu_run_together(tmp_path):
    jobs = [job(name, milli=500) for name in ("a", "b", "c")]
    with SimulatedCluster.create(tmp_path / "c.db", snapshot(jobs=jobs)) as live:
        live.begin(start("a1", placement("a", replica("n0", gpus=[0], milli=500))), "p:a1")
        live.begin(start("a2", placement("b", replica("n0", gpus=[0], milli=500))), "p:a2")

        with pytest.raises(ExecutionError, match="expected 500 thousandths free of GPU 0, found 0"):
            live.begin(start("a3", placement("c", replica("n0", gpus=[0], milli=500))), "p:a3")


@pytest.mark.parametrize(
    ("placed", "why"),
    [
        (placement("zzz", replica("n0", gpus=[3])), "found no such job"),
        (placement("b", replica("n1", gpus=[0, 1])), "expected it waiting, found it running on n0"),
        (placement("held", replica("n0", gpus=[4])), "found it held"),
        (placement("one", replica("n9", gpus=[4])), "expected node n9, found no such node"),
        (placement("one", replica("cordoned", gpus=[4])), "node is cordoned"),
        (placement("one", replica("down", gpus=[4])), "node is not ready"),
        (placement("one", replica("tainted", gpus=[4])), "taint spot is not tolerated"),
        (placement("one", replica("n0", gpus=[1])), "expected 1000 thousandths free of GPU 1, found 0"),
        (placement("one", replica("n0", gpus=[8])), "expected 1000 thousandths free of GPU 8, found 0"),
        (
            placement("one", replica("n0", gpus=[2], milli=500)),
            "expected 1 GPUs for each replica, found 0 GPUs, 500",
        ),
        (placement("one", replica("n0", gpus=[2, 3])), "expected 1 GPUs for each replica, found 2 GPUs"),
        (
            placement("one", replica("n0", gpus=[2], cpus=1)),
            "expected cpu_milli 0 for each replica, found 1000",
        ),
        (placement("pair", replica("n0", gpus=[2])), "expected 2 to 2 replicas, found 1"),
        (placement("pair", replica("n0", gpus=[2]), replica("n0", gpus=[2])), "GPU 2, found 0"),
        (placement("wide", replica("n0", cpus=97)), "expected cpu_milli 97000 free, found 96000"),
        (placement("deep", replica("n0", memory_gib=513)), "expected memory_mib 525312 free, found 524288"),
    ],
)
def test_a_start_that_does_not_fit_is_refused_and_changes_nothing(tmp_path, placed, why):
    before = snapshot(
        nodes=[
            *cluster(2),
            node("cordoned", cordoned=True),
            node("down", ready=False),
            node("tainted", taints=(Taint(key="spot"),)),
        ],
        jobs=[
            job("b", gpus=2, at=[replica("n0", gpus=[0, 1])]),
            job("held", gpus=1, held=True),
            job("one", gpus=1),
            job("pair", gpus=1, replicas=2),
            job("wide", cpus=97),
            job("deep", memory_gib=513),
        ],
    )
    with SimulatedCluster.create(tmp_path / "c.db", before) as live:
        with pytest.raises(ExecutionError) as caught:
            live.begin(start("a1", placed), "p:a1")

        assert f"job {placed.job} cannot start" in str(caught.value)
        assert why in str(caught.value)
        assert live.snapshot() == before
        assert not landed(live, ["p:a1"])


def test_a_gang_of_which_one_replica_does_not_fit_starts_none(live):
    with pytest.raises(ExecutionError, match="node n0"):
        live.begin(
            start("a1", placement("gang", replica("n1", gpus=range(8)), replica("n0", gpus=range(8)))), "p:a1"
        )
    assert live.snapshot() == world()


@pytest.mark.parametrize(("start_slice", "fits"), [(0, True), (4, False)])
def test_a_mig_slice_needs_the_instance(tmp_path, start_slice, fits):
    sliced = Gpu(index=0, mig=(MigInstance(profile="3g.40gb", start=0),))
    gpus = NodeGpus(model=MODEL, count=2, memory_mib=81559, details=(sliced,))
    infer = Job(name="i", queue="q", submitted_at=NOW, request=ResourceRequest(mig={"3g.40gb": 1}))
    placed = placement(
        "i", Replica(node="n0", gpus=(MigSlice(index=0, profile="3g.40gb", start=start_slice),))
    )
    nodes = [node("n0", gpus=0).model_copy(update={"gpus": gpus})]
    with SimulatedCluster.create(tmp_path / "c.db", snapshot(nodes=nodes, jobs=[infer])) as live:
        if fits:
            live.begin(start("a1", placed), "p:a1")
        else:
            with pytest.raises(
                ExecutionError, match=r"expected MIG instance 3g\.40gb at 4 on GPU 0, found none"
            ):
                live.begin(start("a1", placed), "p:a1")
        assert (live.snapshot().job_by_name["i"].running is not None) == fits


def test_a_job_is_finished_at_its_time_and_frees_what_it_held(live):
    live.advance(30 * 60 - 1)
    assert "b" in live.snapshot().job_by_name

    live.advance(1)

    assert "b" not in live.snapshot().job_by_name
    assert live.finished() == (("b", NOW + timedelta(minutes=30)),)
    live.begin(start("a1", placement("a", replica("n0", gpus=[0, 1, 2, 3], cpus=8, memory_gib=64))), "p:a1")


def test_jobs_finish_in_the_order_of_their_ends(live):
    live.begin(start("a1", ON_N0), "p:a1")

    live.advance(3600)

    assert live.finished() == (
        ("a", NOW + timedelta(minutes=10)),
        ("b", NOW + timedelta(minutes=30)),
    )


def test_a_job_that_is_overdue_finishes_when_the_clock_first_moves(tmp_path):
    late = job("late", gpus=1, at=[replica("n0", gpus=[0])], expected_duration="1m")
    with SimulatedCluster.create(tmp_path / "c.db", snapshot(jobs=[late])) as live:
        assert live.snapshot().job_by_name["late"].running

        live.advance(1)

        assert live.finished() == (("late", NOW),)


def test_a_job_without_a_duration_runs_on(tmp_path):
    endless = job("endless", gpus=1, at=[replica("n0", gpus=[0])])
    with SimulatedCluster.create(tmp_path / "c.db", snapshot(jobs=[endless])) as live:
        live.advance(10**9)

        assert live.snapshot().job_by_name["endless"].running


@pytest.mark.parametrize("seconds", [-1, 10**12])
def test_the_clock_moves_forward_only_and_not_for_ever(live, seconds):
    with pytest.raises(PlannerError, match=f"found {seconds}"):
        live.advance(seconds)
    assert live.snapshot().taken_at == NOW


def test_many_hands_starting_jobs_on_one_gpu_start_one(tmp_path):
    names = [f"j{number}" for number in range(8)]
    path = tmp_path / "c.db"
    SimulatedCluster.create(path, snapshot(jobs=[job(name, gpus=1) for name in names])).close()
    together = threading.Barrier(len(names))
    refused = []

    def attempt(name):
        with SimulatedCluster(path) as mine:
            together.wait()
            try:
                mine.begin(start(name, placement(name, replica("n0", gpus=[0]))), f"p:{name}")
            except ExecutionError:
                refused.append(name)

    threads = [threading.Thread(target=attempt, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with SimulatedCluster(path) as live:
        running = [job_.name for job_ in live.snapshot().jobs if job_.running]
    assert len(running) == 1
    assert sorted([*running, *refused]) == names


def test_one_apply_at_a_time_has_the_cluster(live):
    with (
        live.exclusively(),
        SimulatedCluster(live.path) as other,
        pytest.raises(LockedError, match=r"simulated cluster .*cluster\.db .* process \d+ "),
        other.exclusively(),
    ):
        pass


def test_a_cluster_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(PlannerError, match="there is no simulated cluster at"):
        SimulatedCluster(tmp_path / "c.db")
    assert list(tmp_path.iterdir()) == []


def test_a_cluster_cannot_be_made_where_there_is_no_directory(tmp_path):
    with pytest.raises(PlannerError, match="No such file or directory"):
        SimulatedCluster.create(tmp_path / "no" / "c.db", world())


def test_a_log_left_beside_a_cluster_that_is_gone_is_not_replayed(tmp_path):
    path = tmp_path / "c.db"
    old = SimulatedCluster.create(path, snapshot(jobs=[job("old")]))
    old.begin(start("a1", placement("old", replica("n0"))), "p:a1")
    log = (tmp_path / "c.db-wal").read_bytes()
    old.close()
    path.unlink()
    (tmp_path / "c.db-wal").write_bytes(log)

    with SimulatedCluster.create(path, world()) as live:
        assert live.snapshot() == world()


def _text(path):
    path.write_text("apiVersion: v1\n" * 200)


def _empty(path):
    path.touch()


def _another_applications(path):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE jobs (name TEXT)")
    db.close()


def _of_version(version):
    def make(path):
        SimulatedCluster.create(path, world()).close()
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version = {version}")
        db.close()

    return make


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (_text, "file is not a database"),
        (_empty, "found the file of another application"),
        (_another_applications, "found the file of another application"),
        (_of_version(2), "expected tables of version 3, found tables of version 2"),
        (_of_version(9), "expected tables of version 3, found tables of version 9"),
    ],
)
def test_a_file_that_is_no_cluster_of_this_version_is_refused(tmp_path, make, found):
    make(tmp_path / "c.db")

    with pytest.raises(PlannerError, match=found):
        SimulatedCluster(tmp_path / "c.db")


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE jobs SET document = 'x' WHERE name = 'a'",
        "UPDATE jobs SET document = replace(document, '\"gpus\":4', '\"gpus\":-4')",
        "UPDATE facts SET value = 'noon' WHERE name = 'clock'",
        "DELETE FROM facts WHERE name = 'clock'",
        "UPDATE facts SET value = '{}' WHERE name = 'cluster'",
        "DROP TABLE queues",
    ],
)
def test_a_damaged_cluster_is_refused_without_a_traceback(live, damage):
    with sqlite3.connect(live.path) as db:
        db.execute(damage)
    db.close()

    with pytest.raises(PlannerError, match=r"is damaged|cannot be used"):
        live.snapshot()


def test_a_cluster_with_an_overwritten_page_is_refused_without_a_traceback(live):
    live.close()
    content = bytearray(live.path.read_bytes())
    content[4096 : len(content)] = b"\xff" * (len(content) - 4096)
    live.path.write_bytes(content)

    with pytest.raises(PlannerError, match="cannot be used"), SimulatedCluster(live.path) as again:
        again.snapshot()
