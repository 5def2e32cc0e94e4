"""What queues are owed and do not get."""

import pytest

from benchmarks.odd_cases import QUEUES, OddCase, odd_snapshot
from gpuplan.models.policy.policy import Disruption, Policy, Prices
from gpuplan.models.queue import ALL_MODELS, Quota
from gpuplan.models.verifier.snapshot_facts import SnapshotFacts
from gpuplan.planner.problem_builder.quotas import Reclaiming, contested_quotas
from tests.support.builders.build import MODEL, job, node, placement, queue, replica, snapshot
from tests.support.harness.verify_helpers import worth

OTHER = "A100-80GB"
NODES = (node("n0"), node("n1", model=OTHER))


def missing(queues, jobs, *placements, **more):
    """GPUs missing from guarantees, priced at 10 points each."""
    world = snapshot(nodes=NODES, queues=queues, jobs=jobs)
    policy = Policy(prices=Prices(guarantee=10, disruption=0))
    points = worth(world, *placements, policy=policy, **more).get("guarantee", 0)
    assert points % 10 == 0
    return -points // 10


def wants(gpus, name="a", **more):
    return job(name, gpus=gpus, **more)


def gets(gpus, name="a", node="n0", first=0):
    return placement(name, replica(node, gpus=range(first, first + gpus)))


def owed(gpus, name="q", **more):
    return queue(name, nominal=8, guarantee=gpus, **more)


def test_a_queue_that_gets_what_it_is_owed_misses_nothing():
    assert missing([owed(4)], [wants(4)], gets(4)) == 0
    assert missing([owed(4)], [wants(4), wants(4, "b")], gets(4), gets(4, "b", first=4)) == 0


def test_a_queue_misses_what_it_is_owed_and_does_not_get():
    assert missing([owed(4)], [wants(4)]) == 4
    assert missing([owed(4)], [wants(2), wants(3, "b")], gets(2)) == 2


def test_a_queue_misses_no_more_than_it_asks_for():
    assert missing([owed(4)], [wants(3)]) == 3
    assert missing([owed(4)], []) == 0


def test_a_job_that_does_not_fit_within_the_guarantee_is_no_demand_on_it():
    assert missing([owed(4)], [wants(8)]) == 0
    assert missing([owed(4)], [wants(8), wants(3, "b")]) == 3
    assert missing([owed(4)], [wants(3), wants(3, "b")]) == 4
    assert missing([owed(4)], [wants(1, replicas=(4, 8))]) == 4
    assert missing([owed(4)], [wants(1, replicas=(5, 8))]) == 0


def test_a_guarantee_of_a_parent_is_owed_for_what_fits_within_it():
    queues = [queue("p", nominal=8, guarantee=8), queue("q", parent="p", nominal=4, guarantee=4)]

    assert missing(queues, [wants(8)]) == 8


def test_a_queue_without_a_guarantee_misses_nothing():
    assert missing([queue("q", nominal=8)], [wants(4)]) == 0
    assert missing([queue("q")], [wants(4)]) == 0
    assert missing([owed(0)], [wants(4)]) == 0


def test_a_begun_gpu_is_missing_whole():
    share = job("b", milli=300)

    assert missing([owed(1)], [share]) == 1
    assert missing([owed(2.5)], [wants(1), wants(2, "c")], gets(1)) == 2
    assert missing([owed(1)], [share, wants(1)], placement("b", replica(gpus=(0,), milli=300))) == 1


def test_what_running_jobs_hold_counts_while_they_stay():
    runs = job("r", gpus=3, at=gets(3, "r").replicas)

    assert missing([owed(4)], [runs, wants(4)], runs.placement) == 1
    assert missing([owed(4)], [runs], runs.placement) == 0
    assert missing([owed(4)], [runs]) == 3


def test_an_elastic_job_asks_for_its_maximum_while_it_waits_and_for_no_more_than_it_holds_once_it_runs():
    elastic = {"gpus": 1, "replicas": (1, 4)}
    runs = job("r", **elastic, at=[replica(gpus=(0,))])

    assert missing([owed(8)], [job("a", **elastic)]) == 4
    assert missing([owed(8)], [job("a", **elastic)], placement("a", replica(gpus=(0,)))) == 3
    assert missing([owed(8)], [runs], runs.placement) == 0


def test_held_jobs_ask_for_nothing():
    assert missing([owed(4)], [wants(4, held=True)]) == 0


def test_held_jobs_that_run_hold_what_they_hold():
    runs = job("r", gpus=3, held=True, at=gets(3, "r").replicas)

    assert missing([owed(4)], [runs, wants(4)], runs.placement) == 1


def test_queues_below_count_with_their_parent_and_not_the_other_way_round():
    tree = [owed(4), queue("low", parent="q"), queue("lowest", parent="low")]

    assert missing(tree, [wants(3, queue="lowest")]) == 3
    assert missing(tree, [wants(3, queue="lowest"), wants(1, "b")], gets(3)) == 1
    assert missing([queue("top"), owed(4, parent="top")], [wants(3, queue="top")]) == 0


def test_lending_changes_nothing():
    tree = [owed(4), queue("low", parent="q", nominal=2, lending=0)]

    assert missing(tree, [wants(2, queue="low"), wants(2, "b")], gets(2)) == 2


def test_each_queue_misses_by_itself():
    queues = [owed(2, "p"), owed(3, "q"), owed(9, "root")]
    jobs = [wants(2, queue="p"), wants(3, "b", queue="q")]

    assert missing(queues, jobs) == 5
    assert missing(queues, jobs, gets(2)) == 3
    assert missing([owed(2, parent="root"), owed(5, "root")], [wants(2)]) == 4


# --- by GPU model ------------------------------------------------------------------------------------------


def owed_of(**models):
    by_name = {"h100": MODEL, "a100": OTHER}
    quotas = {by_name[key]: Quota(nominal=8, guarantee=value) for key, value in models.items()}
    return [queue("q").model_copy(update={"gpu_models": quotas})]


def test_a_guarantee_of_one_model_is_met_with_that_model():
    assert missing(owed_of(h100=4), [wants(4)], gets(4)) == 0
    assert missing(owed_of(h100=4), [wants(4)], gets(4, node="n1")) == 4


def test_only_jobs_that_may_use_the_model_ask_for_it():
    assert missing(owed_of(h100=4), [wants(4, gpu_models=[OTHER])]) == 0
    assert missing(owed_of(h100=4), [wants(3, gpu_models=[OTHER, MODEL])]) == 3
    assert missing([owed(4)], [wants(4, gpu_models=[OTHER])]) == 4


def test_what_runs_asks_for_the_model_it_is_on():
    runs = job("r", gpus=3, at=gets(3, "r", node="n1").replicas)

    assert missing(owed_of(h100=4), [runs], runs.placement) == 0
    assert missing(owed_of(a100=4), [runs]) == 3


def test_each_model_and_all_together_miss_by_themselves():
    quotas = owed_of(h100=2, a100=1)
    both = [quotas[0].model_copy(update={"quota": Quota(nominal=8, guarantee=4)})]

    jobs = [wants(1, name) for name in "abcd"]
    got = [gets(1, name, first=index) for index, name in enumerate("abcd")]

    assert missing(quotas, jobs) == 3
    assert missing(both, jobs) == 7
    assert missing(both, jobs, *got) == 1


def test_mig_instances_count_by_their_compute_slices():
    runs = job("r", mig={"3g.40gb": 2})
    halves = replica(mig=((0, "3g.40gb", 0), (0, "3g.40gb", 4)))

    # 0.856 GPUs
    assert missing([owed(4)], [runs]) == 1
    assert missing([owed(4)], [runs], placement("r", halves)) == 0


def test_without_a_price_nothing_is_counted():
    world = snapshot(queues=[owed(4)], jobs=[wants(4)])

    assert worth(world, policy=Policy(prices=Prices(guarantee=0))) == {"completion": 0}


def test_doing_nothing_costs_what_is_missing_all_the_same():
    world = snapshot(queues=[owed(4)], jobs=[wants(4)])

    assert worth(world) == {"completion": 0, "guarantee": -400_000}


def test_a_nominal_quota_is_owed_while_a_waiting_job_may_take_back_there_what_others_borrow():
    at = replica(gpus=range(4))
    lent, wanted = job("r", gpus=4, queue="b", at=[at]), job("a", gpus=2, queue="q")
    queues = [queue("q", nominal=4), queue("b")]

    def term(*jobs, **rules):
        world = snapshot(nodes=NODES, queues=queues, jobs=jobs)
        policy = Policy(prices=Prices(nominal=10), disruption=Disruption(**rules))
        return worth(world, placement("r", at), policy=policy).get("nominal", 0)

    assert term(lent, wanted) == -20
    assert term(lent, job("a", gpus=8, queue="q")) == 0
    assert term(lent) == 0
    assert term(lent, wanted, reclaim=False) == 0


@pytest.mark.slow
def test_contested_quotas_of_a_deep_tree_are_those_of_all_pairs_of_jobs():
    """So it is for the verifier and for the problem's builder, which both skip what cannot matter."""
    snapshot = odd_snapshot(OddCase(QUEUES, 16, 60), 1)
    queues = tuple(
        each.model_copy(update={"gpu_models": {OTHER: Quota(nominal=2 + number % 3)}} if number % 3 else {})
        for number, each in enumerate(snapshot.queues)
    )
    snapshot, policy = snapshot.model_copy(update={"queues": queues}).canonical(), Policy()
    models = snapshot.cluster.gpu_model_by_node
    verifier = SnapshotFacts(snapshot).entitlements(policy.disruption)
    builder = Reclaiming(snapshot, policy)
    by_verifier, by_builder = set(), set()
    for waiting in snapshot.waiting:
        asked = waiting.queue, waiting.request.total_gpu_milli * waiting.gang.minimum
        for other in snapshot.jobs:
            for held in other.running.replicas if other.running else ():
                model = models[held.node] if other.request.needs_gpu else None
                by_verifier |= verifier.quotas(*asked, other.queue, model or ALL_MODELS)
                by_builder |= builder.levels(*asked, (other.queue, model))

    assert verifier.contested == by_verifier
    assert contested_quotas(builder) == by_builder == by_verifier
    assert by_verifier
