from __future__ import annotations

from datetime import timedelta

from gpuplan.models.formulation.structure.eviction_patterns import EvictionPatterns
from gpuplan.models.placement import Running
from gpuplan.models.policy.policy import Disruption, Policy, Prices
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.harness.solved_model import solved


def held(name, gpus, *, node="n0", **more):
    """A running job on these GPUs of a node, checkpointed a moment ago."""
    job = build.job(name, gpus=len(gpus), at=[build.replica(node, gpus=gpus)], **more)
    return job.model_copy(
        update={
            "running": Running(
                started_at=job.running.started_at,
                last_checkpoint_at=build.NOW,
                replicas=job.running.replicas,
            )
        }
    )


def full_node():
    """Two jobs of priority 0 that hold four GPUs each of one node."""
    return [held("low-a", range(4)), held("low-b", range(4, 8))]


def test_two_jobs_leave_together_for_one_that_needs_both_places():
    urgent = build.job("urgent", gpus=8, priority=5)

    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[*full_node(), urgent]))

    assert answer.stopped == {"low-a", "low-b"}
    assert answer.placed == {"urgent": 1}


def test_the_one_that_loses_less_leaves():
    worker = full_node()[1]
    long_ago = build.NOW - timedelta(hours=9)
    worker = worker.model_copy(
        update={
            "running": Running(started_at=long_ago, replicas=worker.running.replicas),
        }
    )
    urgent = build.job("urgent", gpus=4, priority=5)

    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[full_node()[0], worker, urgent]))

    assert answer.stopped == {"low-a"}


def test_no_job_leaves_for_a_job_of_equal_priority():
    equal = build.job("equal", gpus=8, weight=10)

    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[*full_node(), equal]))

    assert (answer.stopped, answer.placed) == (set(), {})


def test_no_job_leaves_for_less_than_it_costs():
    urgent = build.job("urgent", gpus=1, priority=2)

    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[*full_node(), urgent]))

    assert (answer.stopped, answer.placed) == (set(), {})


def test_a_job_of_lower_priority_gains_nothing_from_a_preemption():
    """The urgent job needs one GPU of the two: the patient one must not take the other."""
    victim = held("victim", (0, 1), priority=3)
    urgent = build.job("urgent", gpus=1, priority=50)
    patient = build.job("patient", gpus=1, priority=2)

    answer = solved(build.snapshot(nodes=build.cluster(1, gpus=2), jobs=[victim, urgent, patient]))

    assert answer.stopped == {"victim"}
    assert answer.placed == {"urgent": 1}


def test_gang_leaves_all_its_nodes_or_none():
    gang = build.job(
        "gang", gpus=8, replicas=2, at=[build.replica(name, gpus=range(8)) for name in ("n0", "n1")]
    )
    urgent = build.job("urgent", gpus=8, priority=9)
    small = build.job("small", gpus=8, priority=1)

    answer = solved(build.snapshot(jobs=[gang, urgent, small]))

    assert answer.stopped == {"gang"}
    assert answer.placed == {"urgent": 1, "small": 1}


def test_elastic_job_gives_up_a_replica_rather_than_its_life():
    elastic = build.job(
        "elastic",
        gpus=2,
        replicas=(1, 4),
        at=[build.replica("n0", gpus=(2 * i, 2 * i + 1)) for i in range(4)],
    )
    urgent = build.job("urgent", gpus=4, priority=5)

    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[elastic, urgent]))

    assert answer.stopped == set()
    assert [len(positions) for _, positions in answer.aggregate.shrunk] == [2]
    assert answer.placed == {"urgent": 1}


def test_elastic_job_frees_a_gpu_by_giving_up_all_its_shares_there():
    """Its shares are all that the GPU holds; it keeps running elsewhere."""
    places = [build.replica(node, gpus=(0,), milli=500) for node in ("n0", "n0", "n1", "n1")]
    elastic = build.job("elastic", milli=500, replicas=(2, 4), at=places)
    urgent = build.job("urgent", gpus=1, priority=5)
    nodes = [build.node(name, gpus=1) for name in ("n0", "n1")]

    answer = solved(build.snapshot(nodes=nodes, jobs=[elastic, urgent]))

    assert answer.placed == {"urgent": 1}
    assert answer.stopped == set()


def test_elastic_job_grows_into_what_is_free():
    elastic = build.job("elastic", gpus=2, replicas=(1, 4), at=[build.replica("n0", gpus=(0, 1))])

    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[elastic]))

    assert answer.nodes_of("elastic") == [({"n0"}, 3)]


def test_small_job_moves_away_so_that_a_large_one_fits():
    small = held("small", (0,))
    large = build.job("large", gpus=8)
    policy = Policy(disruption=Disruption(migrate=True))
    full = held("full", range(6), node="n1")

    answer = solved(build.snapshot(jobs=[small, full, large]), policy)

    assert answer.moved == {"small"}
    assert answer.placed == {"large": 1, "small": 1}


def test_moving_may_cost_more_than_it_brings():
    small = held("small", (0,))
    large = build.job("large", gpus=8)
    policy = Policy(disruption=Disruption(migrate=True), prices=Prices(migration=10_000))

    answer = solved(
        build.snapshot(nodes=build.cluster(2), jobs=[small, held("full", range(6), node="n1"), large]), policy
    )

    assert answer.moved == set()


def test_equal_jobs_need_a_column_for_each_number_of_leavers_only():
    eight = [held(f"low-{gpu}", (gpu,)) for gpu in range(8)]
    urgent = build.job("urgent", gpus=4, priority=5)

    departures = EvictionPatterns(
        build_problem(build.snapshot(nodes=build.cluster(1), jobs=[*eight, urgent]), Policy())
    )

    assert [each.disturbed_count for each in departures.by_node[0]] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert not departures.crowded
