"""Facts of hosts in the snapshot of a cluster."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Cluster, Gpu, MigInstance
from gpuplan.models.errors import BadInputError
from gpuplan.models.health.measurement import Measurement
from gpuplan.models.job import Job
from gpuplan.models.placement import GpuShare, MigSlice
from gpuplan.models.queue import Queue
from gpuplan.models.snapshot import Snapshot
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.sources.nvml.merge import merge_hosts
from tests.support.builders.build import NOW
from tests.support.builders.build import node as built_node

HALF = MigInstance(profile="3g.40gb", start=4)


def cluster(*nodes, jobs=()):
    """A cluster as a scheduler tells it: types and counts of GPUs, and jobs with their indices."""
    return Snapshot(
        taken_at=NOW,
        cluster=Cluster(name="alps", nodes=nodes or (node(),)),
        queues=(Queue(name="physics"),),
        jobs=tuple(jobs),
    )


def node(name="gpu01", model="h100", count=8, **fields):
    about = {"gpu_memory_mib": 0, "cpus": 64, "memory_gib": 1000} | fields
    return built_node(name, gpus=count, model=model, **about)


def running(name, *gpus, on="gpu01", **request):
    replica = {"node": on, "gpus": gpus}
    return Job(
        name=name,
        queue="physics",
        submitted_at=NOW,
        request=request or {"gpus": len(gpus)},
        running={"started_at": NOW, "replicas": [replica]},
    )


def whole(*indices):
    return [GpuShare(index=index, milli=1000) for index in indices]


def refused(base, *hosts):
    """The figures of all contradictions: (file, message) of each."""
    with pytest.raises(BadInputError) as error:
        merge_hosts(base, hosts)
    return [(each.place, each.message) for each in error.value.problems]


def test_facts_are_added_and_what_the_scheduler_states_stays(machine, read):
    machine.set(2, rows_failed=1)
    base = cluster(node(rack="r1", labels={"slurm/node": "gpu01"}), node("gpu02"))

    merged = merge_hosts(base, [("h.json", read().snapshot)])

    (first, second) = merged.snapshot.cluster.nodes
    assert (first.gpus.model, first.gpus.memory_mib) == ("h100", 81_559)
    assert (first.memory_mib, first.rack, first.labels) == (1_024_000, "r1", {"slurm/node": "gpu01"})
    assert [gpu.healthy for gpu in first.gpus.details] == [True, True, False, *[True] * 5]
    assert first.gpus.by_index[2].fault == "row remapping failed"
    assert first.gpus.by_index[7].uuid.endswith("07")
    assert [gpu.numa for gpu in first.gpus.details] == [0] * 4 + [1] * 4
    assert first.gpus.watts == 0  # it would count against power caps, which is for the snapshot to say
    assert second == node("gpu02")
    assert [note[:35] for note in merged.notes] == ["node gpu01: GPU 2: row remapping fa"]
    assert not list(inconsistencies(merged.snapshot))


def test_a_host_merged_into_its_own_reading_changes_nothing_however_often(machine, read):
    machine.cut(3, (9, 4), (19, 0))
    machine.add_process(0, 7)
    machine.set(5, rows_pending=1)
    found = read(users={7: "ann"}).snapshot

    once = merge_hosts(found, [("h.json", found)]).snapshot

    assert once == found
    assert merge_hosts(once, [("h.json", found)]).snapshot == found


def test_measurements_of_hosts_replace_those_of_the_last_time(machine, read):
    machine.set(2, utilization=33)
    old = [Measurement(node=name, index=2, utilization=1) for name in ("gpu01", "gpu02")]
    base = cluster(node(), node("gpu02")).model_copy(update={"measured": tuple(old)})

    measured = merge_hosts(base, [("h.json", read(name="gpu01.x").snapshot)]).snapshot.measured

    assert {(each.node, each.index): each.utilization for each in measured if each.index == 2} == {
        ("gpu01", 2): 33,
        ("gpu02", 2): 1,
    }
    assert len(measured) == 9


@pytest.mark.parametrize(("pinned", "closed"), [(True, False), (False, True)])
def test_a_faulty_gpu_closes_a_node_if_the_cluster_chooses_its_gpus(machine, read, pinned, closed):
    machine.set(2, lost=1)
    world = node()
    world = world.model_copy(update={"gpus": world.gpus.model_copy(update={"pinned": pinned})})

    merged = merge_hosts(cluster(world), [("h.json", read().snapshot)])

    assert merged.snapshot.cluster.nodes[0].gpus.may_be_unhealthy == closed
    assert len(merged.notes) == 1 + closed


def test_a_job_on_a_gpu_that_is_found_faulty_is_damage_of_the_cluster(machine, read):
    machine.set(2, lost=1)
    base = cluster(jobs=[running("train", *whole(2, 3))])

    merged = merge_hosts(base, [("h.json", read().snapshot)])

    (loss,) = survey_damage(merged.snapshot).losses.values()
    assert loss.damages[0].cause == "gpu 2 of node gpu01 is unhealthy: it does not answer (GPU is lost)"


def test_hosts_are_found_by_their_short_names(machine, read):
    assert machine.environment
    full, short = read(name="gpu01.cluster.example").snapshot, read().snapshot

    for base, found in ((cluster(), full), (cluster(node("gpu01.a")), short)):
        (merged,) = merge_hosts(base, [("h.json", found)]).snapshot.cluster.nodes
        assert merged.gpus.details


def test_every_contradiction_of_every_host_is_told_at_once(machine, read):
    assert machine.environment
    base = cluster(
        node("gpu01", count=4),
        node("gpu02", model="a100"),
        node("gpu03", details=(Gpu(index=1, uuid="GPU-other"),)),
        node("gpu04", count=0),
        node("gpu05", gpu_memory_mib=40_960),
        node("gpu06"),
        node("x1.a"),
        node("x1.b"),
    )
    hosts = [
        (f"{name}.json", read(name=name).snapshot) for name in ("gpu01", "gpu02", "gpu03", "gpu04", "gpu05")
    ]
    hosts += [("more.json", read(name="gpu06").snapshot), ("again.json", read(name="gpu06").snapshot)]
    hosts += [("strange.json", read(name="gpu60").snapshot), ("two.json", read(name="x1").snapshot)]

    problems = refused(base, *hosts)

    assert [place for place, _ in problems] == [
        *("gpu01.json", "gpu02.json", "gpu03.json", "gpu04.json", "gpu05.json"),
        *("again.json", "strange.json", "two.json"),
    ]
    said = dict(problems)
    assert "4 GPUs in the snapshot, and 8 by NVML" in said["gpu01.json"]
    assert "'a100' in the snapshot, and 'NVIDIA-H100-80GB-HBM3'" in said["gpu02.json"]
    assert "GPU-other as GPU 1" in said["gpu03.json"]
    assert "no GPUs in the snapshot, and 8 GPUs" in said["gpu04.json"]
    assert "40,960 MiB in the snapshot, and of 81,559" in said["gpu05.json"]
    assert "more.json too" in said["again.json"]
    assert said["strange.json"].splitlines()[1] == "  Maybe 'gpu06' was meant."


def test_a_layout_other_than_what_jobs_hold_is_a_contradiction(machine, read):
    machine.cut(0, (9, 0))
    machine.cut(1, (9, 0))
    slices = [MigSlice(index=index, profile="3g.40gb", start=4) for index in (1, 2)]
    base = cluster(
        node(
            model="H100-80GB",
            details=(Gpu(index=1, mig=(HALF,)), Gpu(index=2, mig=(HALF,))),
        ),
        jobs=[running("a", *whole(0)), running("b", *slices, mig={"3g.40gb": 2})],
    )

    problems = refused(base, ("h.json", read().snapshot))

    assert [("'a'" in text, "'b'" in text) for _, text in problems] == [(True, False)] + [(False, True)] * 2
    assert "3g.40gb at slice 4 of GPU 2" in problems[2][1]


def test_a_layout_that_no_job_holds_follows_nvml_with_a_note(machine, read):
    machine.cut(1, (9, 0), (14, 4))
    base = cluster(node(model="H100-80GB", details=(Gpu(index=1, mig=(HALF,)), Gpu(index=2, mig=()))))

    merged = merge_hosts(base, [("h.json", read().snapshot)])

    (found,) = merged.snapshot.cluster.nodes
    assert [(each.profile, each.start) for each in found.gpus.by_index[1].mig] == [
        ("3g.40gb", 0),
        ("2g.20gb", 4),
    ]
    assert found.gpus.by_index[2].mig is None
    assert len(merged.notes) == 2


def test_mig_on_a_model_without_known_profiles_is_refused_with_the_name_to_give(machine, read):
    machine.cut(1, (9, 0))

    ((_, text),) = refused(cluster(), ("h.json", read().snapshot))

    assert "'NVIDIA-H100-80GB-HBM3'" in text


def test_a_node_that_the_scheduler_reader_did_not_understand_gets_its_gpus_and_stays_closed(machine, read):
    machine.cut(1, (9, 0))
    base = cluster(node(count=0, cordoned=True))

    (found,) = merge_hosts(base, [("h.json", read().snapshot)]).snapshot.cluster.nodes

    assert (found.gpus.count, found.gpus.by_index[1].mig[0].start, found.cordoned) == (8, 0, True)


def test_a_layout_that_could_not_be_read_leaves_the_stated_one_and_closes_the_node(machine, read):
    machine.cut(1, (9, 4))
    machine.fail("nvmlDeviceGetGpuInstances", 4)
    base = cluster(
        node(model="H100-80GB", details=(Gpu(index=1, mig=(HALF,)),)),
        jobs=[running("b", MigSlice(index=1, profile="3g.40gb", start=4), mig={"3g.40gb": 1})],
    )

    merged = merge_hosts(base, [("h.json", read().snapshot)])

    (found,) = merged.snapshot.cluster.nodes
    assert (found.gpus.by_index[1].mig, found.cordoned) == ((HALF,), True)
    assert not survey_damage(merged.snapshot).losses


def test_a_gpu_that_the_snapshot_calls_unhealthy_stays_so(machine, read):
    assert machine.environment
    base = cluster(node(details=(Gpu(index=4, healthy=False, fault="smoke"),)))

    merged = merge_hosts(base, [("h.json", read().snapshot)])

    gpu = merged.snapshot.cluster.nodes[0].gpus.by_index[4]
    assert (gpu.healthy, gpu.fault, gpu.uuid[-1]) == (False, "smoke", "4")
    assert len(merged.notes) == 1


def test_groups_that_the_snapshot_states_stay(machine, read):
    assert machine.environment
    stated = tuple(Gpu(index=index, nvlink=index // 4) for index in range(8))

    (found,) = merge_hosts(
        cluster(node(details=stated)), [("h.json", read().snapshot)]
    ).snapshot.cluster.nodes

    assert [gpu.nvlink for gpu in found.gpus.details] == [0] * 4 + [1] * 4
    assert {gpu.numa for gpu in found.gpus.details} == {None}


def test_processes_on_gpus_that_no_job_holds_are_jobs_of_others(machine, read):
    for gpu in (0, 1, 5):
        machine.add_process(gpu, 7)
    machine.add_process(2, 8)
    base = cluster(jobs=[running("train", *whole(0, 1))])

    merged = merge_hosts(base, [("h.json", read(users={7: "ann", 8: "bob"}).snapshot)])

    jobs = merged.snapshot.job_by_name
    assert set(jobs) == {"train", "gpu01/pid-7", "gpu01/pid-8"}
    (replica,) = jobs["gpu01/pid-7"].running.replicas
    assert [each.index for each in replica.gpus] == [5]
    assert jobs["gpu01/pid-7"].request.gpus == 1
    assert {queue.name for queue in merged.snapshot.queues} == {"physics", "foreign"}
    assert len(merged.notes) == 2
    assert not list(inconsistencies(merged.snapshot))


def test_processes_of_jobs_whose_gpus_are_not_named_are_theirs(machine, read):
    machine.add_process(0, 7)
    base = cluster(node(cordoned=True), jobs=[running("train", gpus=4)])

    merged = merge_hosts(base, [("h.json", read(users={7: "ann"}).snapshot)])

    assert set(merged.snapshot.job_by_name) == {"train"}
    assert len(merged.notes) == 1


def test_a_new_reading_replaces_the_processes_of_the_last(machine, read):
    machine.add_process(0, 7)
    base = merge_hosts(cluster(), [("h.json", read(users={7: "ann"}).snapshot)]).snapshot
    machine.end_processes(0)
    machine.add_process(3, 9)

    merged = merge_hosts(base, [("h.json", read(users={7: "ann", 9: "bob"}).snapshot)]).snapshot

    assert set(merged.job_by_name) == {"gpu01/pid-9"}


@pytest.mark.parametrize(("minutes", "noted"), [(-11, True), (-10, False), (10, False), (11, True)])
def test_readings_of_another_time_are_noted(machine, read, minutes, noted):
    machine.add_process(0, 7)
    found = read(users={7: "ann"}).snapshot.model_copy(update={"taken_at": NOW + timedelta(minutes=minutes)})

    merged = merge_hosts(cluster(), [("h.json", found)])

    assert any("11m" in note for note in merged.notes) == noted
    assert not list(inconsistencies(merged.snapshot))


def test_a_file_without_gpus_is_refused():
    assert len(refused(cluster(), ("h.json", cluster(node(count=0))))) == 1


def test_a_file_of_a_scheduler_adds_no_jobs_and_no_empty_details():
    base = cluster(node(), node("gpu02"))
    found = cluster(node(), jobs=[running("train", *whole(0))])

    assert merge_hosts(base, [("h.json", found)]).snapshot == base.canonical()
