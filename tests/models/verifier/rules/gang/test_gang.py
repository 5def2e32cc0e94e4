from gpuplan.models.plan.violation import Rule
from tests.support.builders.build import cluster, job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import broken, judge, rules

MIXED = (node("n0", model="H100-80GB"), node("n1", model="A100-80GB"))


def replicas(count, **more):
    return [replica(gpus=(index,), **more) for index in range(count)]


def test_a_gang_starts_whole():
    world = snapshot(jobs=[job("a", gpus=1, replicas=3)])

    assert judge(world, placement("a", *replicas(3))) == ()


def test_an_elastic_gang_starts_with_its_minimum_or_its_maximum_or_between():
    world = snapshot(jobs=[job("a", gpus=1, replicas=(2, 4))])

    assert judge(world, placement("a", *replicas(2))) == ()
    assert judge(world, placement("a", *replicas(3))) == ()
    assert judge(world, placement("a", *replicas(4))) == ()


def test_a_gang_does_not_start_with_one_replica_less():
    world = snapshot(jobs=[job("a", gpus=1, replicas=3)])

    found = judge(world, placement("a", *replicas(2)))

    assert found == broken(Rule.GANG, "job a", "2 replicas", "3 replicas")


def test_a_gang_does_not_start_with_one_replica_more():
    world = snapshot(jobs=[job("a", gpus=1)])

    found = judge(world, placement("a", *replicas(2)))

    assert found == broken(Rule.GANG, "job a", "2 replicas", "1 replica")


def test_an_elastic_gang_does_not_leave_its_range():
    world = snapshot(jobs=[job("a", gpus=1, replicas=(2, 4))])

    assert judge(world, placement("a", *replicas(1))) == broken(
        Rule.GANG, "job a", "1 replica", "2 to 4 replicas"
    )
    assert judge(world, placement("a", *replicas(5))) == broken(
        Rule.GANG, "job a", "5 replicas", "2 to 4 replicas"
    )


def test_a_gang_is_on_one_gpu_model():
    world = snapshot(nodes=MIXED, jobs=[job("a", gpus=1, replicas=2)])

    found = judge(world, placement("a", replica("n0", gpus=(0,)), replica("n1", gpus=(0,))))

    assert found == broken(Rule.GANG, "job a", "GPU models A100-80GB, H100-80GB", "1 GPU model")


def test_a_gang_on_two_nodes_of_one_model_is_legal():
    world = snapshot(nodes=cluster(2), jobs=[job("a", gpus=1, replicas=2)])

    assert judge(world, placement("a", replica("n0", gpus=(0,)), replica("n1", gpus=(0,)))) == ()


def test_a_gang_without_gpus_may_stand_beside_any_gpu_model():
    world = snapshot(nodes=MIXED, jobs=[job("a", cpus=1, replicas=2)])

    assert judge(world, placement("a", replica("n0", cpus=1), replica("n1", cpus=1))) == ()


def test_a_running_gang_is_what_it_is():
    runs = job("a", gpus=1, replicas=2, at=[replica("n0", gpus=(0,)), replica("n1", gpus=(0,))])

    assert judge(snapshot(nodes=MIXED, jobs=[runs]), runs.placement) == ()


def test_gpus_that_a_node_does_not_have_are_of_no_model():
    world = snapshot(nodes=[node("n0"), node("n1", gpus=0)], jobs=[job("a", gpus=1, replicas=2)])

    found = judge(world, placement("a", replica("n0", gpus=(0,)), replica("n1", gpus=(0,))))

    assert [each.rule for each in found] == [Rule.SELECTION]


def test_a_running_gang_that_changes_is_judged_as_it_will_be():
    runs = job("a", gpus=1, replicas=(1, 3), at=[replica("n0", gpus=(0,))])
    other = replica("n1", gpus=(0,))
    world = snapshot(nodes=MIXED, jobs=[runs])

    assert judge(world, placement("a", replica("n0", gpus=(0,)), other)) == broken(
        Rule.GANG, "job a", "GPU models A100-80GB, H100-80GB", "1 GPU model"
    )
    assert judge(world, placement("a", other), policy=rules(migrate=True)) == ()


def test_a_running_gang_that_moves_onto_two_models_is_split():
    runs = job("a", gpus=1, replicas=2, at=replicas(2))
    after = placement("a", replica("n0", gpus=(0,)), replica("n1", gpus=(0,)))

    found = judge(snapshot(nodes=MIXED, jobs=[runs]), after, policy=rules(migrate=True))

    assert found == broken(Rule.GANG, "job a", "GPU models A100-80GB, H100-80GB", "1 GPU model")
