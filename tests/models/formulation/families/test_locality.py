from __future__ import annotations

from gpuplan.models.affinity import LocalityPreference, Spread
from gpuplan.models.cluster import Level
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.policy.policy import Policy, Prices
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.builders.gang_builders import gang, racks
from tests.support.harness.solved_model import solved
from tests.support.oracles.relaxation_duals import duals


def test_gang_fits_the_one_rack_that_is_large_enough():
    answer = solved(build.snapshot(nodes=racks(2, 3), jobs=[gang("g", 3, required=Level.RACK)]))

    assert answer.nodes_of("g") == [({"r1n0", "r1n1", "r1n2"}, 3)]


def test_gang_larger_than_every_rack_does_not_fit():
    answer = solved(build.snapshot(nodes=racks(2, 3), jobs=[gang("g", 4, required=Level.RACK)]))

    assert answer.placed == {}


def test_gang_of_one_zone_may_use_several_racks():
    answer = solved(build.snapshot(nodes=racks(2, 3), jobs=[gang("g", 5, required=Level.ZONE)]))

    assert answer.placed == {"g": 1}


def test_racks_are_counted_one_by_one_not_in_sum():
    """Three racks of three nodes: three gangs of two fit, a fourth does not though three nodes are left."""
    jobs = [gang(f"g{number}", 2, required=Level.RACK) for number in range(4)]

    answer = solved(build.snapshot(nodes=racks(3, 3, 3), jobs=jobs))

    assert answer.placed == {"g0": 3}


def test_small_jobs_of_a_rack_cannot_break_up_the_nodes_a_large_one_counts_on():
    """Each rack has one node and a gang that must be there: a job that needs a whole node finds none."""
    tied = [
        build.job(
            f"tied{rack}",
            gpus=1,
            replicas=2,
            weight=100,
            node_selector={"at": str(rack)},
            locality=LocalityPreference(required=Level.RACK),
        )
        for rack in range(2)
    ]
    nodes = [build.node(f"n{rack}", rack=f"r{rack}", labels={"at": str(rack)}) for rack in range(2)]

    answer = solved(build.snapshot(nodes=nodes, jobs=[*tied, build.job("large", gpus=8)]))

    assert answer.placed == {"tied0": 1, "tied1": 1}


def test_preferred_rack_costs_for_each_rack_beyond_one():
    policy = Policy(prices=Prices(domain=7))

    def points(*sizes):
        jobs = [gang("g", 4, preferred=Level.RACK)]
        return solved(build.snapshot(nodes=racks(*sizes), jobs=jobs), policy).points

    assert points(4) - points(3, 1) == 7
    assert points(4) - points(2, 1, 1) == 14


def test_price_may_outweigh_the_gang():
    policy = Policy(prices=Prices(domain=100_000))
    jobs = [gang("g", 4, preferred=Level.RACK)]

    assert solved(build.snapshot(nodes=racks(3, 1), jobs=jobs), policy).placed == {}


def test_spread_limits_the_replicas_of_a_domain():
    def placed(most):
        jobs = [build.job("s", gpus=1, replicas=3, spread=Spread(level=Level.NODE, max=most))]
        return solved(build.snapshot(nodes=racks(1, 1), jobs=jobs)).placed

    assert placed(1) == {}
    assert placed(2) == {"s": 1}


def test_replicas_of_equal_gangs_share_the_limit_of_a_domain():
    jobs = [build.job(f"s{i}", gpus=1, replicas=2, spread=Spread(level=Level.RACK)) for i in range(4)]

    answer = solved(build.snapshot(nodes=racks(1, 1), jobs=jobs))

    assert answer.placed == {"s0": 4}
    assert [count for _, count in answer.nodes_of("s0")] == [4, 4]


def relaxed(*sizes):
    """Points that the linear relaxation promises a gang of four that needs one of racks of such sizes."""
    snapshot = build.snapshot(nodes=racks(*sizes), jobs=[gang("g", 4, required=Level.RACK)])
    problem = build_problem(snapshot, Policy())
    value, _ = duals(formulate(problem, Columns(problem)))
    return round(value)


def test_a_rack_too_small_for_a_gang_promises_no_part_of_it():
    assert relaxed(3, 3, 3) == 0
    assert relaxed(3, 3, 4) == relaxed(4) > 0
