"""How many replicas find MIG instances on a node, each instance put where it spoils the least."""

from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.policy.policy import MigPolicy
from gpuplan.planner.waiting.mig_capacity import MigCapacity, profiles_of
from tests.support.builders.build import job, node, placement, replica, snapshot


def room_for(mig, *, gpus, used=(), repartition=True):
    """Replicas that fit a node of so many GPUs in MIG mode, with instances in use (GPU, profile, start)."""
    layouts = {
        index: [(profile, start) for gpu, profile, start in used if gpu == index] for index in range(gpus)
    }
    world = snapshot(nodes=[node(gpus=gpus, mig=layouts)], jobs=[job("r")])
    there = [placement("r", replica(mig=used))] if used else []
    nodes = world.cluster.nodes
    room = MigCapacity(there, MigPolicy(repartition=repartition))
    return room.replicas(nodes[0], free_resources_by_node(nodes, there)["n0"], profiles_of(mig))


def test_small_instances_stay_out_of_the_way_of_large_ones():
    # Wherever a small one could spoil a start of the large ones, one replica would be lost.
    assert room_for({"1g.10gb": 1, "3g.40gb": 1}, gpus=2, used=[(1, "1g.10gb", 0)]) == 3


def test_every_one_of_several_equal_gpus_is_filled():
    assert room_for({"1g.10gb": 1}, gpus=4) == 28
    assert room_for({"3g.40gb": 1}, gpus=4) == 8


def test_gpus_in_different_states_are_filled_each_by_itself():
    assert room_for({"1g.10gb": 1}, gpus=3, used=[(1, "3g.40gb", 0), (2, "1g.10gb", 2)]) == 7 + 3 + 6
    assert room_for({"1g.10gb": 3}, gpus=3, used=[(1, "3g.40gb", 0), (2, "1g.10gb", 2)]) == 5


def test_what_is_in_use_is_not_had_again():
    assert room_for({"7g.80gb": 1}, gpus=3, used=[(0, "1g.10gb", 0), (2, "1g.10gb", 6)]) == 1


def test_without_repartitioning_only_idle_instances_count():
    assert room_for({"1g.10gb": 1}, gpus=2, used=[(0, "1g.10gb", 0)], repartition=False) == 0


def test_a_gpu_that_the_plan_switches_is_cut_whatever_is_said_of_those_in_mig_mode():
    """`mig.repartition` is about GPUs that are in MIG mode before the plan."""
    nodes = (node(gpus=1, mig={0: [("3g.40gb", 4)]}),)
    there = [placement("r", replica(mig=[(0, "3g.40gb", 4)]))]
    policy = MigPolicy(repartition=False, switch_mode=True)

    def small_ones(switched):
        room = MigCapacity(there, policy, switched)
        return room.replicas(
            nodes[0], free_resources_by_node(nodes, there)["n0"], profiles_of({"1g.10gb": 1})
        )

    assert small_ones(set()) == 0
    assert small_ones({("n0", 0)}) == 4
