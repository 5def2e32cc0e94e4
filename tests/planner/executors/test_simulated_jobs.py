"""What the simulated cluster does to jobs: each change done as it says, or refused with nothing changed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu, NodeGpus, Overcommit, QosClass
from gpuplan.models.job import Progress, ResourceRequest
from gpuplan.models.plan.actions import Grow, Migrate, Preempt, Shrink
from gpuplan.models.policy.policy import Policy
from gpuplan.models.timing.durations import Durations
from gpuplan.planner.executors.interface import ExecutionError
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import MODEL, NOW, cluster, job, node, placement, queue, replica, snapshot
from tests.support.samples.all_actions import (
    begin,
    change,
    grow,
    mig_job,
    mig_node,
    mig_replica,
    migrate,
    preempt,
    shrink,
)
from tests.support.samples.apply_world import landed, perform

SUBMITTED = timedelta(hours=5)
WORLD = snapshot(
    nodes=[
        *cluster(2),
        node("cordoned", cordoned=True),
        node("draining", drain=True),
        node("new", ready_at=NOW + timedelta(minutes=10)),
    ],
    jobs=[
        job("steady", gpus=2, waited=SUBMITTED, at=[replica("n0", gpus=[0, 1])], expected_duration="2h"),
        job("elastic", gpus=1, replicas=(1, 3), at=[replica("n0", gpus=[2]), replica("n0", gpus=[3])]),
        job("fixed", gpus=1, at=[replica("n0", gpus=[4])], preemptible=False),
        job("pair", gpus=1, replicas=2, at=[replica("n1", gpus=[0]), replica("n1", gpus=[1])]),
        job("waits", gpus=4, expected_duration="1h"),
    ],
    queues=[queue("q")],
)
ELASTIC = WORLD.job_by_name["elastic"].running.replicas


@pytest.fixture
def live(tmp_path):
    with SimulatedCluster.create(tmp_path / "c.db", WORLD) as cluster_:
        yield cluster_


def found(live, name):
    return live.snapshot().job_by_name[name]


def test_a_preempted_job_waits_again_as_it_was_submitted_and_was_preempted_once_more(live):
    perform(live, preempt(WORLD, "steady"))

    waits = {"running": None, "preemptions": 1, "progress": Progress(served="2h")}
    assert found(live, "steady") == WORLD.job_by_name["steady"].model_copy(update=waits)
    assert found(live, "steady").submitted_at == NOW - SUBMITTED


def test_only_being_preempted_counts_and_each_time_does(live):
    first = preempt(WORLD, "steady")
    perform(live, first, first)
    live.begin(begin(WORLD, "steady", replica("n1", gpus=[2, 3])), "p:again")
    assert found(live, "steady").preemptions == 1

    live.fail_node("n1")
    live.return_node("n1")
    live.begin(begin(WORLD, "steady", replica("n1", gpus=[2, 3])), "p:a third time")
    assert found(live, "steady").preemptions == 1

    live.begin(preempt(live.snapshot(), "steady"), "q:1")
    assert found(live, "steady").preemptions == 2


def test_what_a_preempted_job_held_is_free_for_others(live):
    wanted = begin(WORLD, "waits", replica("n0", gpus=[0, 1, 5, 6]))
    with pytest.raises(ExecutionError, match="expected 1000 thousandths free of GPU 0, found 0"):
        perform(live, wanted)

    perform(live, preempt(WORLD, "steady"), wanted)

    assert found(live, "waits").running.replicas == (replica("n0", gpus=[0, 1, 5, 6]),)


def test_a_preempted_job_without_a_checkpoint_runs_again_for_its_whole_duration(live):
    perform(live, preempt(WORLD, "steady"))
    live.advance(7200)
    assert live.finished() == ()

    perform(live, begin(WORLD, "steady", replica("n1", gpus=[2, 3])))
    live.advance(7199)
    assert live.finished() == ()
    live.advance(1)
    assert live.finished() == (("steady", NOW + timedelta(hours=4)),)


def test_a_shrunk_job_goes_on_with_the_replicas_it_keeps(live):
    before = found(live, "elastic").running

    perform(live, shrink(WORLD, "elastic", ELASTIC[1]))

    after = {"replicas": ELASTIC[1:], "resized_at": NOW, "resumed_at": NOW}
    assert found(live, "elastic").running == before.model_copy(update=after)
    perform(live, begin(WORLD, "waits", replica("n0", gpus=[2, 5, 6, 7])))


def test_a_grown_job_goes_on_with_more_replicas(live):
    before = found(live, "elastic").running

    perform(live, grow(WORLD, "elastic", replica("n1", gpus=[7])))

    after = {"replicas": (*ELASTIC, replica("n1", gpus=[7])), "resized_at": NOW, "resumed_at": NOW}
    assert found(live, "elastic").running == before.model_copy(update=after)
    with pytest.raises(ExecutionError, match="free of GPU 7, found 0"):
        perform(live, begin(WORLD, "waits", replica("n1", gpus=[4, 5, 6, 7])))


def test_a_resized_job_ends_later_by_the_interruption_and_by_the_work_that_it_had_not_saved(tmp_path):
    elastic = job("e", gpus=1, replicas=(1, 3), at=[replica(gpus=[0])], expected_duration="90m")
    with SimulatedCluster.create(tmp_path / "e.db", snapshot(jobs=[elastic])) as live:
        # It ran for an hour without a checkpoint, and so has all of its 90 minutes before it.
        perform(live, grow(live.snapshot(), "e", replica(gpus=[5]), interruption=360))
        assert left_of(live, "e") == 96 * 60
        # Ten minutes later it has worked for four.
        live.advance(10 * 60)
        assert left_of(live, "e") == 86 * 60
        perform(live, shrink(live.snapshot(), "e", replica(gpus=[0]), interruption=60))
        assert left_of(live, "e") == 91 * 60

        live.advance(91 * 60)
        assert live.finished() == (("e", NOW + timedelta(minutes=101)),)


def test_a_resized_job_has_been_served_by_the_replicas_that_it_had(tmp_path):
    elastic = job("e", gpus=1, replicas=(1, 3), at=[replica(gpus=[0])], expected_duration="90h")
    with SimulatedCluster.create(tmp_path / "e.db", snapshot(jobs=[elastic])) as live:
        # It ran for an hour alone, runs for two hours with two replicas, and then for half an hour alone.
        perform(live, grow(live.snapshot(), "e", replica(gpus=[5]), interruption=360))
        live.advance(7200)
        perform(live, shrink(live.snapshot(), "e", replica(gpus=[0]), interruption=60))
        live.advance(1800)
        seen = live.snapshot()
        waits = Durations(seen, Policy()).stopped(seen.job_by_name["e"])

    assert waits.progress.document()["served"] == "5h30m"


def left_of(live, name):
    """Seconds that a plan of now expects a job to go on."""
    seen = live.snapshot()
    return Durations(seen, Policy()).remaining(seen.job_by_name[name])


def test_a_cluster_made_from_a_snapshot_goes_on_with_what_a_resized_job_has_saved(tmp_path):
    elastic = job("e", gpus=1, replicas=(1, 3), at=[replica(gpus=[0])], expected_duration="90m")
    times = {"resized_at": NOW, "resumed_at": NOW + timedelta(minutes=6)}
    update = {"running": elastic.running.model_copy(update=times), "progress": Progress(completed="56m")}
    world = snapshot(jobs=[elastic.model_copy(update=update)])
    with SimulatedCluster.create(tmp_path / "e.db", world) as live:
        assert left_of(live, "e") == 40 * 60
        live.advance(3600)
        assert live.finished() == (("e", NOW + timedelta(minutes=40)),)


@pytest.fixture
def saved(tmp_path):
    """As `live`, where job steady made a checkpoint half an hour ago, halfway between its start and now."""
    steady = WORLD.job_by_name["steady"]
    running = steady.running.model_copy(update={"last_checkpoint_at": NOW - timedelta(minutes=30)})
    others = [job for job in WORLD.jobs if job.name != "steady"]
    known = [steady.model_copy(update={"running": running}), *others]
    with SimulatedCluster.create(tmp_path / "s.db", WORLD.model_copy(update={"jobs": known})) as cluster_:
        yield cluster_


def test_a_migrated_job_runs_from_its_last_checkpoint_elsewhere(saved):
    saved.advance(600)

    perform(saved, migrate(WORLD, "steady", replica("n1", gpus=[2, 3]), recovery=240))

    moved = found(saved, "steady")
    assert moved.running.replicas == (replica("n1", gpus=[2, 3]),)
    assert moved.running.started_at == NOW + timedelta(minutes=10)
    assert moved.running.resumed_at == NOW + timedelta(minutes=14)
    assert moved.last_checkpoint_at == NOW - timedelta(minutes=30)
    perform(saved, begin(WORLD, "waits", replica("n0", gpus=[0, 1, 5, 6])))
    saved.advance(94 * 60)
    assert ("steady", NOW + timedelta(minutes=104)) in saved.finished()


def test_a_preempted_job_keeps_what_its_last_checkpoint_saved(saved):
    perform(saved, preempt(WORLD, "steady"))

    waits = found(saved, "steady")
    saved_at = "2026-11-20T11:30:00Z"
    assert waits.progress.document() == {"completed": "30m", "last_checkpoint_at": saved_at, "served": "2h"}
    saved.advance(600)
    perform(saved, begin(WORLD, "steady", replica("n1", gpus=[2, 3]), recovery=300))
    saved.advance(3 * 3600)
    assert ("steady", NOW + timedelta(minutes=10 + 5 + 90)) in saved.finished()


def test_stopped_before_it_is_back_from_its_checkpoint_a_job_has_what_it_had(saved):
    perform(saved, preempt(WORLD, "steady"))
    perform(saved, begin(WORLD, "steady", replica("n1", gpus=[2, 3]), recovery=300))
    saved.advance(299)
    before = found(saved, "steady").progress

    live_again = saved.snapshot()
    saved.begin(preempt(live_again, "steady"), "q:1")

    held = 2 * 299 * 1000
    assert found(saved, "steady").progress == before.model_copy(
        update={"served_milli": before.served_milli + held}
    )


def test_a_job_may_move_onto_places_of_its_own(live):
    perform(live, migrate(WORLD, "steady", replica("n0", gpus=[1, 5])))

    assert found(live, "steady").running.replicas == (replica("n0", gpus=[1, 5]),)


def test_a_gang_moves_whole_or_not_at_all(live):
    with pytest.raises(ExecutionError, match=r"job pair cannot migrate: node n0: .*GPU 0, found 0"):
        perform(live, migrate(WORLD, "pair", replica("n1", gpus=[5]), replica("n0", gpus=[0])))

    assert live.snapshot() == WORLD


def test_what_starts_on_a_node_being_provisioned_runs_from_when_it_is_ready(live):
    perform(live, begin(WORLD, "waits", replica("new", gpus=range(4))))

    assert found(live, "waits").running.started_at == NOW + timedelta(minutes=10)
    live.advance(69 * 60)
    assert found(live, "waits").running
    live.advance(60)
    assert ("waits", NOW + timedelta(minutes=70)) in live.finished()


def test_what_moves_to_a_node_being_provisioned_ends_later_by_the_wait(live):
    perform(live, migrate(WORLD, "steady", replica("new", gpus=[0, 1])))

    moved = found(live, "steady").running
    assert moved.started_at == NOW + timedelta(minutes=10)
    live.advance(3 * 3600)
    assert ("steady", NOW + timedelta(minutes=130)) in live.finished()


def test_a_job_moved_before_it_began_has_all_its_work_before_it(live):
    perform(live, begin(WORLD, "waits", replica("new", gpus=range(4))))

    perform(live, migrate(live.snapshot(), "waits", replica("n1", gpus=range(2, 6))))

    live.advance(2 * 3600)
    assert ("waits", NOW + timedelta(hours=1)) in live.finished()


def test_a_job_that_waits_for_new_nodes_begins_at_once_when_it_gives_them_up(tmp_path):
    elastic = job("e", gpus=1, replicas=(1, 2), expected_duration="1h")
    world = snapshot(nodes=[*cluster(1), node("new", ready_at=NOW + timedelta(minutes=10))], jobs=[elastic])
    with SimulatedCluster.create(tmp_path / "e.db", world) as live:
        perform(live, begin(world, "e", replica("n0", gpus=[0]), replica("new", gpus=[0])))
        assert found(live, "e").running.started_at == NOW + timedelta(minutes=10)

        perform(live, shrink(live.snapshot(), "e", replica("n0", gpus=[0])))

        assert found(live, "e").running.started_at == NOW
        live.advance(2 * 3600)
        assert live.finished() == (("e", NOW + timedelta(hours=1)),)


def resized(kind, name, *replicas):
    """A change of a kind, whatever it leads to."""
    before = placement(name, replica("n0", gpus=[0]))
    places = {"before": before, "after": placement(name, *replicas)}
    return change(kind, name, [], job=name, **places)


def stopped(name):
    return change(Preempt, name, [], job=name, before=placement(name, replica("n0", gpus=[0])))


REFUSED = [
    (stopped("zzz"), "job zzz cannot be preempted: expected a running job, found no such job"),
    (stopped("waits"), "expected it running, found it waiting"),
    (stopped("fixed"), "expected a preemptible job, found it not preemptible"),
    (resized(Shrink, "fixed", replica("n0", gpus=[4])), "expected a preemptible job"),
    (resized(Migrate, "fixed", replica("n1", gpus=[4])), "expected a preemptible job"),
    (resized(Shrink, "waits", replica("n0", gpus=[4])), "expected it running, found it waiting"),
    (resized(Shrink, "elastic", replica("n0", gpus=[5])), "expected fewer of the replicas that run"),
    (resized(Shrink, "elastic", *ELASTIC), "expected fewer of the replicas that run"),
    (resized(Shrink, "pair", replica("n1", gpus=[0])), "expected 2 to 2 replicas, found 1"),
    (resized(Grow, "elastic", *ELASTIC), "expected all replicas that run and more"),
    (
        resized(Grow, "elastic", ELASTIC[0], replica("n0", gpus=[5])),
        "expected all replicas that run and more",
    ),
    (
        resized(Grow, "elastic", *ELASTIC, replica("n0", gpus=[5]), replica("n0", gpus=[6])),
        "expected 1 to 3 replicas, found 4",
    ),
    (resized(Grow, "elastic", *ELASTIC, replica("n0", gpus=[0])), "node n0: expected 1000 thousandths free"),
    (resized(Grow, "elastic", *ELASTIC, replica("n0", gpus=[2])), "free of GPU 2, found 0"),
    (resized(Grow, "elastic", *ELASTIC, replica("n0", gpus=[5, 6])), "expected 1 GPUs for each replica"),
    (resized(Grow, "elastic", *ELASTIC, replica("cordoned", gpus=[0])), "node is cordoned"),
    (resized(Migrate, "steady", replica("draining", gpus=[0, 1])), "node is to be drained"),
    (resized(Migrate, "steady", replica("n9", gpus=[0, 1])), "expected node n9, found no such node"),
    (resized(Migrate, "steady", replica("n1", gpus=[0, 1])), "free of GPU 0, found 0"),
    (
        resized(Migrate, "steady", replica("n1", gpus=[2, 3]), replica("n1", gpus=[4, 5])),
        "expected 1 replicas as it runs, found 2",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("refused", "why"), REFUSED)
def test_a_change_of_a_job_that_cannot_be_is_refused_and_changes_nothing(live, refused, why):
    with pytest.raises(ExecutionError) as caught:
        perform(live, refused)

    assert why in str(caught.value)
    assert live.snapshot() == WORLD
    assert not landed(live, [f"p:{refused.id}"])


def admitted(path, world, name, *replicas):
    """None if the cluster starts the job there, else why not."""
    with SimulatedCluster.create(path / "c.db", world) as live:
        try:
            perform(live, begin(world, name, *replicas))
        except ExecutionError as error:
            return str(error)
        assert found(live, name).running
    return None


@pytest.mark.parametrize(
    ("qos", "cpus", "why"),
    [
        (QosClass.GUARANTEED, 16, None),
        (QosClass.GUARANTEED, 16.001, "expected cpu_milli 16001 free, found 16000"),
        (QosClass.BURSTABLE, 32, None),
        # 32.001 cores at two to one count for 16.0005, rounded up.
        (QosClass.BURSTABLE, 32.001, "expected cpu_milli 16001 free, found 16000"),
        (QosClass.BEST_EFFORT, 16.001, "expected cpu_milli 16001 free, found 16000"),
    ],
)
def test_cpus_promised_more_than_once_are_counted_by_qos_class(tmp_path, qos, cpus, why):
    half = job("half", cpus=32, qos=QosClass.BURSTABLE, at=[replica("n0", cpus=32)])
    world = snapshot(nodes=[node("n0", cpus=32)], jobs=[half, job("a", cpus=cpus, qos=qos)])
    shared = world.cluster.model_copy(update={"overcommit": {QosClass.BURSTABLE: Overcommit(cpus=2)}})
    world = world.model_copy(update={"cluster": shared})

    refused = admitted(tmp_path, world, "a", replica("n0", cpus=cpus))

    assert (refused is None) == (why is None)
    assert why is None or why in refused


def test_memory_promised_more_than_once_is_freed_as_it_was_counted(tmp_path):
    world = snapshot(
        nodes=[node("n0", memory_gib=8)],
        jobs=[
            job("a", memory_gib=16, qos=QosClass.BEST_EFFORT, at=[replica("n0", memory_gib=16)]),
            job("b", memory_gib=8),
        ],
    )
    shared = world.cluster.model_copy(update={"overcommit": {QosClass.BEST_EFFORT: Overcommit(memory=2)}})
    world = world.model_copy(update={"cluster": shared})
    with SimulatedCluster.create(tmp_path / "c.db", world) as live:
        with pytest.raises(ExecutionError, match="expected memory_mib 8192 free, found 0"):
            perform(live, begin(world, "b", replica("n0", memory_gib=8)))

        perform(live, preempt(world, "a"), begin(world, "b", replica("n0", memory_gib=8)))


def test_a_job_that_needs_nothing_of_what_is_short_is_not_kept_out(tmp_path):
    world = snapshot(
        nodes=[node("n0", cpus=4)], jobs=[job("a", cpus=8, at=[replica("n0", cpus=8)]), job("b", gpus=1)]
    )

    assert admitted(tmp_path, world, "b", replica("n0", gpus=[0])) is None


@pytest.mark.parametrize("allowed", [True, False])
def test_shares_of_time_sliced_gpus_are_for_jobs_that_allow_it(tmp_path, allowed):
    sliced = NodeGpus(model=MODEL, count=1, memory_mib=81559, time_sliced=True)
    nodes = [node("n0", gpus=1).model_copy(update={"gpus": sliced})]
    world = snapshot(nodes=nodes, jobs=[job("a", milli=500, time_slicing=allowed)])

    refused = admitted(tmp_path, world, "a", replica("n0", gpus=[0], milli=500))

    assert (refused is None) == allowed
    assert allowed or "time-sliced" in refused


@pytest.mark.parametrize(("wanted", "fits"), [(81559, True), (81560, False)])
def test_a_device_must_have_the_memory_asked_for(tmp_path, wanted, fits):
    asked = job("a").model_copy(update={"request": ResourceRequest(gpus=1, gpu_memory_mib=wanted)})
    world = snapshot(jobs=[asked])

    assert (admitted(tmp_path, world, "a", replica("n0", gpus=[0])) is None) == fits


MIG_HELD = mig_job("holds", g3_40=1, at=[mig_replica("mig0", "3g.40gb", 0)])


@pytest.mark.parametrize(
    ("placed", "why"),
    [
        (mig_replica("mig0", "3g.40gb", 4), None),
        (
            mig_replica("mig0", "3g.40gb", 0),
            "MIG instance 3g.40gb at 0 on GPU 0 free, found it in use",
        ),
        (replica("mig0", gpus=[0]), "expected 0 GPUs, 1 of MIG 3g.40gb for each replica, found 1 GPUs"),
    ],
)
def test_a_mig_instance_has_one_user(tmp_path, placed, why):
    layout = [("3g.40gb", 0), ("3g.40gb", 4)]
    world = snapshot(nodes=[mig_node(layout=layout)], jobs=[MIG_HELD, mig_job("a", g3_40=1)])

    refused = admitted(tmp_path, world, "a", placed)

    assert (refused is None) == (why is None)
    assert why is None or why in refused


def test_a_gpu_in_mig_mode_is_not_held_as_a_gpu(tmp_path):
    world = snapshot(nodes=[mig_node(layout=[("3g.40gb", 0)])], jobs=[job("a", gpus=1)])

    assert "free of GPU 0, found 0" in admitted(tmp_path, world, "a", replica("mig0", gpus=[0]))


def test_an_instance_of_an_unhealthy_gpu_is_refused(tmp_path):
    sick = mig_node(layout=[("3g.40gb", 0)])
    details = tuple(Gpu(index=0, healthy=False, mig=gpu.mig) for gpu in sick.gpus.details)
    gpus = sick.gpus.model_copy(update={"details": details})
    world = snapshot(nodes=[sick.model_copy(update={"gpus": gpus})], jobs=[mig_job("a", g3_40=1)])

    refused = admitted(tmp_path, world, "a", mig_replica("mig0", "3g.40gb", 0))

    assert "expected GPU 0 healthy, found it unhealthy" in refused
