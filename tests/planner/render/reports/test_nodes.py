"""Drawings of nodes: what each GPU holds before and after a plan."""

from __future__ import annotations

from collections import Counter

from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.plan import NodeChange
from gpuplan.planner.render.reports.cluster_map import large_node
from gpuplan.planner.render.reports.nodes import GpuPartChange, node_pictures
from tests.support.builders.build import cluster, job, node, placement, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.samples.sample_plans import busy_plan


def pictures(plan):
    return {picture.name: picture for picture in node_pictures(plan)}


def fates(side):
    return [(part.start, part.size, part.fate, part.job) for part in side.parts]


def test_a_gpu_is_filled_by_the_jobs_that_hold_it_before_and_after():
    stays = job("stays", milli=250, at=[replica(gpus=[0], milli=250)])
    world = snapshot(jobs=[stays, job("comes", milli=500)])
    plan = drafted(world, placement("comes", replica(gpus=[0], milli=500)))

    gpu = pictures(plan)["n0"].devices[0]

    assert fates(gpu.before) == [(0, 250, GpuPartChange.KEPT, "stays")]
    assert fates(gpu.after) == [
        (0, 250, GpuPartChange.KEPT, "stays"),
        (250, 500, GpuPartChange.ARRIVES, "+ comes"),
    ]


def test_leaving_jobs_are_only_before_and_arriving_ones_only_after():
    for picture in node_pictures(busy_plan()):
        for device in picture.devices:
            before = {part.fate for part in device.before.parts} if device.before else set()
            after = {part.fate for part in device.after.parts} if device.after else set()
            assert GpuPartChange.ARRIVES not in before
            assert GpuPartChange.LEAVES not in after


def test_a_node_shows_jobs_that_come_go_and_stay_with_the_signs_of_the_plan():
    found = pictures(busy_plan())

    assert found["h100-01"].leaving == ("- sweep-117",)
    assert "+ train-llama" in found["h100-01"].arriving
    assert "> eval" in found["cloud-1"].arriving
    assert found["cloud-1"].change is NodeChange.ADDED
    assert found["old-2"].state == "removed"
    assert found["h100-04"].state == "to be drained"


def test_a_job_that_shrinks_or_grows_is_told_once_with_its_sign():
    found = pictures(busy_plan())

    assert "~ tune" in found["h100-02"].leaving
    assert "~ embed" in found["h100-03"].arriving
    assert not {"tune", "embed"} & {name for each in found.values() for name in each.staying}


def held(placements):
    """Thousandths of each GPU that is not in MIG mode, by node and name of the GPU."""
    found = Counter()
    for placed in placements:
        for part in placed.replicas:
            for gpu in part.gpus:
                if isinstance(gpu, GpuShare):
                    found[part.node, f"GPU {gpu.index}"] += gpu.milli
    return found


def drawn(plan, which):
    """The same as it is drawn."""
    return Counter(
        {
            (picture.name, device.name): sum(part.size for part in side.parts)
            for picture in node_pictures(plan)
            for device in picture.devices
            if (side := getattr(device, which)) and not side.mig and device.name != "CPUs"
        }
    )


def test_power_drawn_is_that_of_all_holders_together():
    plan = busy_plan()

    assert +drawn(plan, "before") == held(plan.snapshot.running_placements)
    assert +drawn(plan, "after") == held(plan.placements)


def test_added_and_removed_nodes_have_one_side_only():
    found = pictures(busy_plan())

    assert all(device.before is None for device in found["cloud-1"].devices)
    assert all(device.after is None for device in found["old-2"].devices)


def test_mig_instances_stand_at_their_slices():
    plan = busy_plan()
    gpu = pictures(plan)["mig-1"].devices[0]

    assert [part.profile for part in gpu.before.parts] == ["3g.40gb", "3g.40gb"]
    assert [part.start for part in gpu.before.parts] == [0, 500]
    assert {part.profile for part in gpu.after.parts} == {"3g.40gb", "1g.10gb"}
    assert pictures(plan)["mig-1"].new_layout


def test_mig_instances_without_users_are_idle():
    world = snapshot(nodes=[node(gpus=1, mig={0: [("3g.40gb", 0)]})], jobs=[])

    (picture,) = node_pictures(drafted(world))

    assert [part.fate for part in picture.devices[0].after.parts] == [GpuPartChange.IDLE]
    assert not picture.changes


def test_nodes_without_gpus_show_their_cpus():
    world = snapshot(nodes=[node(gpus=0, cpus=64)], jobs=[job("prepare", cpus=16)])
    plan = drafted(world, placement("prepare", replica(cpus=16)))

    (picture,) = node_pictures(plan)

    assert fates(picture.devices[0].after) == [(0, 250, GpuPartChange.ARRIVES, "+ prepare")]
    assert picture.words == "n0: 0 → 16 of 64 CPUs; + prepare"


def test_what_is_held_beyond_a_gpu_is_cut_off():
    jobs = [job(name, milli=800, at=[replica(gpus=[0], milli=800)]) for name in ("a", "b")]

    picture = pictures(drafted(snapshot(jobs=jobs)))["n0"]

    parts = picture.devices[0].before.parts
    assert sum(part.size for part in parts) == 1000


def test_nodes_that_are_down_are_not_drawn_as_free():
    (picture,) = node_pictures(drafted(snapshot(nodes=cluster(1, ready=False))))

    assert not any(device.after.usable for device in picture.devices)
    assert picture.state == "down"
    assert 'class="off"' in large_node(picture)
