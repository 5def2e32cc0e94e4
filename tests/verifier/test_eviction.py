from build import job, placement, replica, snapshot
from judging import broken, holding, judge, sliced

from planner.models.violation import Rule

TWO = (replica("n0", gpus=(0, 1), cpus=2), replica("n1", gpus=(2, 3), cpus=2))
RUNS = job("a", gpus=2, cpus=2, replicas=2, at=TWO)
WORLD = snapshot(jobs=[RUNS])


def test_a_running_job_stays():
    assert judge(WORLD, RUNS.placement) == ()


def test_the_order_of_replicas_and_gpus_means_nothing():
    swapped = replica("n0", gpus=(1, 0), cpus=2)

    assert judge(WORLD, placement("a", TWO[1], swapped)) == ()


def test_a_running_job_is_not_stopped():
    assert judge(WORLD) == broken(Rule.EVICTION, "job a", "stopped", "runs on")


def test_a_running_job_does_not_shrink():
    found = judge(WORLD, placement("a", TWO[0]))

    assert found == broken(Rule.EVICTION, "job a", "1 replica", "2 replicas")


def test_a_running_job_does_not_grow_even_within_its_gang():
    runs = job("a", gpus=1, replicas=(1, 3), at=[replica(gpus=(0,))])

    found = judge(snapshot(jobs=[runs]), placement("a", replica(gpus=(0,)), replica(gpus=(1,))))

    assert found == broken(Rule.EVICTION, "job a", "2 replicas", "1 replica")


def test_a_running_job_does_not_change_nodes():
    found = judge(WORLD, placement("a", TWO[0], replica("n0", gpus=(2, 3), cpus=2)))

    assert found == broken(
        Rule.EVICTION,
        "job a",
        "node n0, gpu 2, gpu 3, 2 CPU cores",
        "node n1, gpu 2, gpu 3, 2 CPU cores",
    )


def test_a_running_job_does_not_change_gpus():
    found = judge(WORLD, placement("a", TWO[0], replica("n1", gpus=(2, 4), cpus=2)))

    assert found == broken(
        Rule.EVICTION,
        "job a",
        "node n1, gpu 2, gpu 4, 2 CPU cores",
        "node n1, gpu 2, gpu 3, 2 CPU cores",
    )


def test_a_running_job_does_not_change_its_share():
    runs = job("a", milli=500, at=[replica(gpus=(0,), milli=500)])

    found = judge(snapshot(jobs=[runs]), placement("a", replica(gpus=(0,), milli=250)))

    assert found == broken(Rule.EVICTION, "job a", "node n0, 0.25 of gpu 0", "node n0, 0.5 of gpu 0")


def test_a_running_job_does_not_change_mig_instances():
    runs = job("a", at=[sliced(replica(), (0, "3g.40gb", 0))])

    found = judge(snapshot(jobs=[runs]), placement("a", sliced(replica(), (0, "3g.40gb", 4))))

    assert (
        broken(
            Rule.EVICTION,
            "job a",
            "node n0, 3g.40gb at slice 4 of gpu 0",
            "node n0, 3g.40gb at slice 0 of gpu 0",
        )[0]
        in found
    )


def test_two_equal_replicas_are_not_one_and_another():
    one, other = replica("n0", cpus=1), replica("n1", cpus=1)
    runs = job("a", cpus=1, replicas=2, at=[one, other])

    found = judge(snapshot(jobs=[runs]), placement("a", one, one))

    assert found == broken(Rule.EVICTION, "job a", "node n0, 1 CPU core", "node n1, 1 CPU core")


def test_a_resource_of_which_nothing_is_held_means_nothing():
    runs = job("a", cpus=1, at=[holding(replica(cpus=1), resources={"rdma/hca": 0})])

    assert judge(snapshot(jobs=[runs]), placement("a", replica(cpus=1))) == ()
