from datetime import timedelta

from build import job, node, placement, replica, snapshot

from planner.models import verifier
from planner.models.policy import Policy

NODES = (node("n0", model="H100-80GB"), node("n1", model="A100-80GB"), node("cpus", gpus=0))


def value(jobs, *placements, policy=None):
    return verifier.verify(snapshot(nodes=NODES, jobs=jobs), policy or Policy(), placements).objective


def gpus(count, node="n0"):
    return replica(node, gpus=tuple(range(count)))


def test_a_started_job_earns_its_points():
    # weight 1 × 8 GPUs × 100 points
    assert value([job("a", gpus=8)], placement("a", gpus(8))) == 800


def test_terms_are_named_and_sum_to_the_objective():
    world = snapshot(jobs=[job("a", gpus=8), job("b", gpus=1)])

    some = verifier.verify(world, Policy(), [placement("a", gpus(8)), placement("b", gpus(1, "n1"))])
    none = verifier.verify(world, Policy(), [])

    assert (some.objective, some.terms) == (900, {"completion": 900})
    assert (none.objective, none.terms) == (0, {"completion": 0})


def test_running_jobs_earn_nothing():
    runs = job("r", gpus=4, at=[gpus(4)])

    assert value([runs], runs.placement) == 0


def test_waiting_is_counted_to_the_instant_of_the_snapshot():
    waited = job("a", gpus=1, waited=timedelta(hours=12))

    # 1 + 2 full steps of 6 hours
    assert value([waited], placement("a", gpus(1))) == 300


def test_a_slower_gpu_model_earns_less():
    picky = job("a", gpus=4, gpu_models={"H100-80GB": 1, "A100-80GB": 0.5})

    assert value([picky], placement("a", gpus(4, "n0"))) == 400
    assert value([picky], placement("a", gpus(4, "n1"))) == 200


def test_an_elastic_job_earns_by_the_replica():
    elastic = job("a", gpus=1, replicas=(1, 4))

    assert value([elastic], placement("a", *(replica(gpus=(index,)) for index in range(3)))) == 300


def test_a_job_without_gpus_earns_full_speed_anywhere():
    small = job("a", cpus=1, gpu_models={"H100-80GB": 1, "A100-80GB": 0.5})

    # smallest size 0.1 GPUs × 100 points
    assert value([small], placement("a", replica("n1", cpus=1))) == 10


def test_a_start_that_is_none_earns_nothing():
    later = placement("a", gpus(1)).model_copy(update={"slot": 2})

    assert value([], placement("ghost", gpus(1))) == 0
    assert value([job("a", gpus=1, held=True)], placement("a", gpus(1))) == 0
    assert value([job("a", gpus=1)], placement("a", gpus(1)), placement("a", gpus(1, "n1"))) == 0
    assert value([job("a", gpus=1)], later) == 0
    assert value([job("a", gpus=1)], placement("a", gpus(1, "gone"))) == 0
    assert value([job("a", gpus=1)], placement("a", replica("cpus", gpus=(0,)))) == 0
    assert value([job("a", gpus=1, gpu_models=["T4"])], placement("a", gpus(1))) == 0
    assert value([job("a", gpus=1, replicas=2)], placement("a", gpus(1, "n0"), gpus(1, "n1"))) == 0
