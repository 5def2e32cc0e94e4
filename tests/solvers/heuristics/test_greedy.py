"""Greedy: always legal, maximal, best paid first; the ledger below it never takes what is not there."""

from __future__ import annotations

import random

import pytest

from gpuplan.models.job import ResourceRequest
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.state.node_scores import NodeScores
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.strategies import instances

POLICY = instances.POLICY


def starts_of(snapshot, ledger):
    running = {placement.job for placement in snapshot.running_placements}
    placements = target_of(ledger, snapshot.running_placements).placements
    return tuple(placement for placement in placements if placement.job not in running)


def started(snapshot):
    return {
        placement.job: placement for placement in starts_of(snapshot, greedy(build_problem(snapshot, POLICY)))
    }


def test_better_paid_job_goes_first():
    jobs = [build.job("low", gpus=8), build.job("high", gpus=8, priority=1)]

    assert set(started(build.snapshot(nodes=build.cluster(1), jobs=jobs))) == {"high"}


def test_larger_of_equally_paid_jobs_goes_first_and_small_ones_fill_up():
    jobs = [build.job("small", gpus=1), build.job("large", gpus=7)]

    assert set(started(build.snapshot(nodes=build.cluster(1), jobs=jobs))) == {"large", "small"}


def test_tightest_node_is_filled_first():
    running = build.job("r", gpus=6, at=[build.replica("n1", gpus=range(6))])

    places = started(build.snapshot(nodes=build.cluster(2), jobs=[running, build.job("a", gpus=2)]))

    assert places["a"].replicas[0].node == "n1"


def test_share_goes_to_the_fullest_gpu_it_fits():
    running = [
        build.job("r0", milli=300, at=[build.replica("n0", gpus=(0,), milli=300)]),
        build.job("r1", milli=600, at=[build.replica("n0", gpus=(1,), milli=600)]),
        build.job("r2", milli=800, at=[build.replica("n0", gpus=(2,), milli=800)]),
    ]

    places = started(build.snapshot(nodes=build.cluster(1), jobs=[*running, build.job("a", milli=400)]))

    assert places["a"].replicas[0].gpus[0].index == 1


def test_cpu_only_job_keeps_off_nodes_with_gpus_while_it_can():
    nodes = [build.node("gpu"), build.node("plain", gpus=0, cpus=32)]

    places = started(build.snapshot(nodes=nodes, jobs=[build.job(name, cpus=20) for name in "ab"]))

    assert {place.replicas[0].node for place in places.values()} == {"gpu", "plain"}
    assert places["a"].replicas[0].node == "plain"


def test_job_heavy_on_cpu_goes_where_cpu_abounds():
    """One node has more cores a GPU: the heavy job there strands nothing."""
    nodes = [build.node("lean", cpus=32), build.node("rich", cpus=128)]
    jobs = [
        build.job("heavy", gpus=1, cpus=24),
        *(build.job(f"l{index}", gpus=1, cpus=4) for index in range(8)),
    ]

    places = started(build.snapshot(nodes=nodes, jobs=jobs))

    assert places["heavy"].replicas[0].node == "rich"
    assert len(places) == 9


def test_gang_leaves_no_partial_claim_behind():
    snapshot = build.snapshot(
        nodes=build.cluster(2), jobs=[build.job(gpus=8, replicas=3), build.job("b", gpus=8)]
    )
    ledger = greedy(build_problem(snapshot, POLICY))

    assert [placement.job for placement in starts_of(snapshot, ledger)] == ["b"]
    assert int(ledger.capacity.whole.sum()) == 8


def test_elastic_gang_grows_into_what_is_free():
    snapshot = build.snapshot(nodes=build.cluster(3), jobs=[build.job(gpus=8, replicas=(1, 9))])

    assert len(started(snapshot)["a"].replicas) == 3


def test_elastic_gang_placed_small_grows_when_the_ledger_is_filled():
    problem = build_problem(
        build.snapshot(nodes=build.cluster(1), jobs=[build.job(gpus=1, replicas=(1, 8))]), POLICY
    )
    ledger = Ledger(problem)
    option = problem.classes[0].options[0]
    ledger.settle(0, option, ledger.take(0, ledger.node_scores(0, option), 1), jobs=1)

    fill_free_capacity(ledger)

    assert [len(placed.sites) for placed in ledger.placed.values()] == [8]


def test_resource_named_like_a_standard_one_is_a_resource_of_its_own():
    node = build.node(resources={"cpu_milli": 5})
    request = ResourceRequest(gpus=1, cpus=4, resources={"cpu_milli": 2})
    jobs = [build.job("z").model_copy(update={"request": request}), build.job("a", gpus=1, cpus=4)]
    snapshot = build.snapshot(nodes=[node], jobs=jobs)

    starts = starts_of(snapshot, greedy(build_problem(snapshot, POLICY)))

    assert {placement.job for placement in starts} == {"a", "z"}
    assert verify(snapshot, POLICY, starts).violations == ()


def test_quota_stops_growth_of_an_elastic_gang():
    snapshot = build.snapshot(queues=[build.queue("q", nominal=3)], jobs=[build.job(gpus=1, replicas=(1, 9))])

    assert len(started(snapshot)["a"].replicas) == 3


def test_older_of_equal_jobs_starts():
    jobs = [build.job("young", gpus=8), build.job("old", gpus=8, waited=build.timedelta(hours=1))]

    assert set(started(build.snapshot(nodes=build.cluster(1), jobs=jobs))) == {"old"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [instances.divisible, instances.mixed, instances.cpu_limited(instances.mixed)],
    ids=["divisible", "mixed", "quotas of CPU and memory"],
)
def test_nothing_more_fits_after_greedy_and_nothing_is_illegal(kind):
    placed = 0
    for seed in range(200):
        snapshot = kind(seed)
        problem = build_problem(snapshot, POLICY)
        ledger = greedy(problem)
        before = len(ledger.placed)
        fill_free_capacity(ledger)
        starts = starts_of(snapshot, ledger)
        verification = verify(snapshot, POLICY, (*snapshot.running_placements, *starts))
        assert len(ledger.placed) == before, seed
        assert verification.violations == (), seed
        assert verification.objective == ledger.objective, seed
        placed += len(starts)
        _assert_no_other_job_fits(snapshot, problem, starts, seed)
    assert placed > 200


def _assert_no_other_job_fits(snapshot, problem, starts, seed):
    """Planned again as the cluster then stands, nothing starts."""
    running = {placement.job: placement for placement in starts}
    jobs = [
        job.model_copy(
            update={"running": build.Running(started_at=build.NOW, replicas=running[job.name].replicas)}
        )
        if job.name in running
        else job
        for job in snapshot.jobs
    ]
    again = snapshot.model_copy(update={"jobs": tuple(jobs)})
    assert not greedy(build_problem(again, POLICY)).placed, seed


def every_option(problem):
    return [
        (index, option) for index, job_class in enumerate(problem.classes) for option in job_class.options
    ]


@pytest.mark.slow
def test_ledger_gives_back_exactly_what_it_took():
    for seed in range(100):
        draw = random.Random(seed)
        problem = build_problem(instances.mixed(seed), POLICY)
        ledger, fresh = Ledger(problem), Ledger(problem)
        for index, option in every_option(problem):
            sites = ledger.take(index, ledger.node_scores(index, option), draw.randint(0, 3))
            assert ledger.settle(index, option, sites, jobs=0) == []
        assert (ledger.capacity.gpu_free == fresh.capacity.gpu_free).all()
        assert (ledger.capacity.free == fresh.capacity.free).all()
        assert (ledger.capacity.whole == fresh.capacity.whole).all()
        assert (ledger.capacity.gpu_left == fresh.capacity.gpu_left).all()


@pytest.mark.slow
def test_board_kept_up_to_date_is_a_board_made_anew():
    for seed in range(40):
        draw = random.Random(seed)
        problem = build_problem(instances.mixed(seed), POLICY)
        ledger = Ledger(problem)
        for _ in range(6):
            for index, option in every_option(problem):
                ledger.take(index, ledger.node_scores(index, option), draw.randint(0, 2))
                kept = ledger.node_scores(index, option)
                anew = NodeScores(ledger.feasibility, ledger.tenants[index], kept.nodes)
                assert kept.best(ledger.feasibility) == anew.best(ledger)
                assert kept.order.tolist() == anew.order.tolist()


def test_ranking_puts_every_class_once():
    problem = build_problem(instances.mixed(3), POLICY)

    assert sorted(problem.placement_order) == list(range(len(problem.classes)))
