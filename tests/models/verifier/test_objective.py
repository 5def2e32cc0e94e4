"""Completion, and how terms make an objective; the other terms have files of their own."""

from datetime import timedelta

from gpuplan.models.policy.policy import Prices
from gpuplan.models.verifier import verify
from tests.support.builders.build import by_value, job, node, placement, replica, snapshot
from tests.support.harness.verify_helpers import rules

NODES = (node("n0", model="H100-80GB"), node("n1", model="A100-80GB"), node("cpus", gpus=0))
SPEEDS = {"H100-80GB": 1, "A100-80GB": 0.5}
FREE = Prices(disruption=0, migration=0, resize=0)
"""What is done to running jobs costs nothing, so that completion is all there is."""


def value(jobs, *placements, policy=None):
    return verify.verify(snapshot(nodes=NODES, jobs=jobs), policy or by_value(), placements).objective


def change(runs, *replicas, **switches):
    """What completion changes by if a running job is then there."""
    policy = rules(migrate=True, **switches).model_copy(update={"prices": FREE})
    after = [placement(runs.name, *replicas)] if replicas else []
    return value([runs], *after, policy=policy)


def gpus(count, node="n0"):
    return replica(node, gpus=tuple(range(count)))


def each(count, node="n0"):
    """So many replicas of one GPU each."""
    return [replica(node, gpus=(index,)) for index in range(count)]


# --- starts ------------------------------------------------------------------------------------------------


def test_a_started_job_earns_its_points():
    # weight 1 × 8 GPUs × 100 points
    assert value([job("a", gpus=8)], placement("a", gpus(8))) == 800


def test_terms_are_named_and_sum_to_the_objective():
    world = snapshot(jobs=[job("a", gpus=8), job("b", gpus=1)])

    some = verify.verify(world, by_value(), [placement("a", gpus(8)), placement("b", gpus(1, "n1"))])
    none = verify.verify(world, by_value(), [])

    assert (some.objective, some.terms) == (900, {"completion": 900})
    assert (none.objective, none.terms) == (0, {"completion": 0})


def test_every_term_that_is_not_zero_is_told():
    runs = job("r", gpus=1, at=[gpus(1)])

    answer = verify.verify(
        snapshot(jobs=[runs, job("a", gpus=8)]), by_value(), [placement("a", gpus(8, "n1"))]
    )

    # An hour of work, a minute of checkpoint and five of restart are lost: 1.1 GPU-hours.
    assert answer.terms == {"completion": 700, "preemption": -110}
    assert answer.objective == 590


def test_waiting_is_counted_to_the_instant_of_the_snapshot():
    waited = job("a", gpus=1, waited=timedelta(hours=12))

    # 1 + 2 full steps of 6 hours
    assert value([waited], placement("a", gpus(1))) == 300


def test_a_slower_gpu_model_earns_less():
    picky = job("a", gpus=4, gpu_models=SPEEDS)

    assert value([picky], placement("a", gpus(4, "n0"))) == 400
    assert value([picky], placement("a", gpus(4, "n1"))) == 200


def test_an_elastic_job_earns_by_the_replica():
    elastic = job("a", gpus=1, replicas=(1, 4))

    assert value([elastic], placement("a", *each(3))) == 300


def test_a_job_without_gpus_earns_full_speed_anywhere():
    small = job("a", cpus=1, gpu_models=SPEEDS)

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


# --- running jobs ------------------------------------------------------------------------------------------


def test_running_jobs_that_stay_earn_nothing():
    runs = job("r", gpus=4, at=[gpus(4)])

    assert value([runs], runs.placement) == 0


def test_a_stopped_job_no_longer_earns_what_it_earned():
    assert change(job("r", gpus=4, at=[gpus(4)])) == -400
    assert change(job("r", gpus=4, gpu_models=SPEEDS, at=[gpus(4, "n1")])) == -200


def test_a_job_that_moves_to_a_faster_model_earns_the_difference():
    slow = job("r", gpus=4, gpu_models=SPEEDS, at=[gpus(4, "n1")])
    fast = job("r", gpus=4, gpu_models=SPEEDS, at=[gpus(4, "n0")])

    assert change(slow, gpus(4, "n0")) == 200
    assert change(fast, gpus(4, "n1")) == -200
    assert change(fast, replica("n0", gpus=(4, 5, 6, 7))) == 0


def test_a_job_that_shrinks_or_grows_earns_by_the_replica():
    elastic = job("r", gpus=1, replicas=(1, 4), at=each(2))

    assert change(elastic, *each(1)) == -100
    assert change(elastic, *each(4)) == 200


def test_a_job_that_runs_where_it_may_not_start_has_the_speed_of_its_slowest_model():
    runs = job("r", gpus=4, gpu_models={"H100-80GB": 1, "T4": 0.25}, at=[gpus(4, "n1")])

    assert change(runs) == -100
    assert change(runs, gpus(4, "n0")) == 300


def test_a_running_job_without_gpus_has_full_speed():
    runs = job("r", cpus=1, gpu_models=SPEEDS, at=[replica("n1", cpus=1)])

    assert change(runs, replica("n0", cpus=1)) == 0
    assert change(runs) == -10


def test_a_job_that_runs_on_several_models_has_the_speed_of_the_slowest():
    runs = job("r", gpus=4, replicas=2, gpu_models=SPEEDS, at=[gpus(4, "n0"), gpus(4, "n1")])

    assert change(runs) == -400
