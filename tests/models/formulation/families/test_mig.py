from __future__ import annotations

import pytest

from gpuplan.models.cluster import Gpu, MigInstance, Node, NodeGpus
from gpuplan.models.job import Job, ResourceRequest
from gpuplan.models.placement import MigSlice, Replica, Running
from gpuplan.models.policy.policy import Disruption, MigPolicy
from tests.support.builders import build
from tests.support.harness.solved_model import solved

ONE, TWO, THREE, FOUR = "1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb"


def mig_node(*instances, name="n0"):
    """A node with one A100 in MIG mode that has these (profile, start) instances."""
    present = tuple(MigInstance(profile=profile, start=start) for profile, start in instances)
    gpus = NodeGpus(model="A100-40GB", count=1, memory_mib=40960, details=(Gpu(index=0, mig=present),))
    return Node(name=name, gpus=gpus, cpus=64, memory_mib=512 * 1024)


def wants(name, profile, count=1, **more):
    """A waiting job that asks for instances of one profile."""
    return Job(
        name=name, queue="q", request=ResourceRequest(mig={profile: count}), submitted_at=build.NOW, **more
    )


def uses(name, profile, start, node="n0"):
    """A running job that holds one instance."""
    place = Replica(node=node, gpus=(MigSlice(index=0, profile=profile, start=start),))
    return wants(name, profile).model_copy(
        update={"running": Running(started_at=build.NOW, last_checkpoint_at=build.NOW, replicas=(place,))}
    )


def started(node, *jobs, **policy):
    answer = solved(build.snapshot(nodes=[node], jobs=jobs), build.by_value(**policy))
    return answer, sum(answer.placed.values())


@pytest.mark.parametrize(
    ("profiles", "fit"),
    [
        ((THREE, THREE, ONE), 2),  # seven sevenths, and nine memory slices
        ((FOUR, THREE), 2),
        ((FOUR, TWO, ONE), 3),
        ((THREE, TWO, ONE, ONE), 4),
        ((ONE,) * 7, 7),
        ((ONE,) * 8, 7),
        ((TWO,) * 4, 3),
        ((FOUR, FOUR), 1),
    ],
)
def test_as_many_fit_as_a_legal_layout_has(profiles, fit):
    jobs = [wants(f"j{number}", profile, weight=1000) for number, profile in enumerate(profiles)]

    _, found = started(mig_node(), *jobs)

    assert found == fit


def test_instances_planned_for_one_gpu_do_not_overlap():
    answer, _ = started(
        mig_node(),
        *(wants(name, profile, weight=100) for name, profile in zip("abc", (FOUR, TWO, ONE), strict=True)),
    )

    (instances,) = answer.aggregate.instances.values()
    slices = [
        slot
        for each in instances
        for slot in range(each.start, each.start + {FOUR: 4, TWO: 2, ONE: 1}[each.profile])
    ]
    assert len(slices) == len(set(slices)) == 7


def test_idle_instance_is_used_before_one_is_created():
    answer, _ = started(mig_node((ONE, 3)), wants("a", ONE))

    assert answer.aggregate.instances == {(0, 0): (MigInstance(profile=ONE, start=3),)}
    assert answer.points == round(100 / 7 - 0.5)


def test_without_repartition_only_existing_instances_are_used():
    _, found = started(mig_node((ONE, 3)), wants("a", ONE), wants("b", TWO), mig=MigPolicy(repartition=False))

    assert found == 1


def test_running_instances_at_0_and_4_leave_no_room_for_a_3g():
    _, found = started(
        mig_node((ONE, 0), (ONE, 4)), uses("a", ONE, 0), uses("b", ONE, 4), wants("c", THREE, weight=1000)
    )

    assert found == 0


def test_one_move_makes_room_for_the_3g():
    answer, _ = started(
        mig_node((ONE, 0), (ONE, 4)),
        uses("a", ONE, 0),
        uses("b", ONE, 4),
        wants("c", THREE, weight=1000),
        disruption=Disruption(migrate=True),
    )

    assert len(answer.moved) == 1
    assert answer.placed["c"] == 1


def test_idle_gpu_is_switched_to_mig_mode_only_if_the_policy_allows():
    node = build.node("n0", gpus=1, model="A100-40GB")

    assert started(node, wants("a", THREE, weight=1000))[1] == 0
    assert started(node, wants("a", THREE, weight=1000), mig=MigPolicy(switch_mode=True))[1] == 1


def test_gpu_that_is_switched_is_no_whole_gpu():
    node = build.node("n0", gpus=1, model="A100-40GB")
    jobs = wants("a", THREE, weight=1000), build.job("b", gpus=1, weight=500)

    _, found = started(node, *jobs, mig=MigPolicy(switch_mode=True))

    assert found == 1


def test_media_extensions_are_there_once():
    jobs = [wants(f"j{number}", "1g.5gb+me", weight=1000) for number in range(2)]

    assert started(mig_node(), *jobs)[1] == 1


def test_media_extensions_are_there_once_on_each_of_many_gpus():
    # As many equal GPUs as there are places for such an instance on one of them.
    nodes = [mig_node(name=f"n{number}") for number in range(7)]
    jobs = [wants(f"j{number}", "1g.5gb+me", weight=1000) for number in range(10)]

    answer = solved(build.snapshot(nodes=nodes, jobs=jobs), build.by_value())

    assert sum(answer.placed.values()) == 7


def test_replicas_need_as_many_instances_as_they_ask_for():
    assert started(mig_node(), wants("a", ONE, count=7, weight=1000))[1] == 1
    assert started(mig_node(), wants("a", ONE, count=8, weight=1000))[1] == 0
