"""What a proof does not speak of, and that it says so."""

from __future__ import annotations

from gpuplan.models.cluster import Cluster
from gpuplan.models.policy.policy import Disruption, Policy, PoolPolicy, Prices
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.epoch_cache import EpochCache
from gpuplan.planner.problem_builder.incumbents import left_out
from tests.support.builders.build import job, node, pool, replica, snapshot


def told(world, **policy):
    return {each.what.split()[0]: each.count for each in left_out(world, Policy(**policy), EpochCache())}


def unlike(name="u", **more):
    """A running job of two replicas, one of which holds another amount of memory."""
    places = [replica(gpus=(0,), memory_gib=1), replica("n1", gpus=(0,), memory_gib=2)]
    return job(name, gpus=1, replicas=2, at=places, **more)


def test_nothing_is_left_out_of_a_plain_question():
    running = job("r", gpus=1, at=[replica(gpus=(0,))])

    assert left_out(snapshot(jobs=[running, job("w", gpus=8)]), Policy(), EpochCache()) == ()


def test_jobs_of_unlike_replicas_are_counted_while_something_waits():
    assert told(snapshot(jobs=[unlike(), job("w", gpus=8)])) == {"disturbing": 1}
    assert told(snapshot(jobs=[unlike()])) == {}


def test_what_may_not_be_disturbed_anyway_is_not_left_out():
    rules = Disruption(preempt=False, resize=False)

    assert told(snapshot(jobs=[unlike(), job("w", gpus=8)]), disruption=rules) == {}
    assert told(snapshot(jobs=[unlike(preemptible=False), job("w", gpus=8)])) == {}


def test_resuming_jobs_that_start_with_others_counts_where_there_is_a_later_slot():
    bound = job("r", gpus=1, at=[replica(gpus=(0,))], co_start="g"), job("w", gpus=8, co_start="g")

    assert told(snapshot(jobs=bound), horizon=HorizonPolicy(slots=2)) == {"resuming": 1}
    assert told(snapshot(jobs=bound)) == {}
    assert told(snapshot(jobs=bound[:1]), horizon=HorizonPolicy(slots=2)) == {}


def test_stopping_for_fewer_fragments_counts_where_these_have_a_price():
    running = job("r", gpus=1, at=[replica(gpus=(0,))])

    assert told(snapshot(jobs=[running]), prices=Prices(fragmentation=1)) == {"stopping": 1}


def test_nodes_of_full_pools_could_be_exchanged():
    members = [node("a", pool="spot"), node("b", pool="spot")]

    def counted(most, **rules):
        world = snapshot(jobs=[])
        cluster = Cluster(name="c", nodes=members, pools=[pool(most=most)])
        return told(world.model_copy(update={"cluster": cluster}), pools=PoolPolicy(**rules))

    assert counted(2) == {"exchanging": 1}
    assert counted(3) == {}
    assert counted(2, scale_down=False) == {}
