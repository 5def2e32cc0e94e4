"""Sites for equal gangs: spread out or close together, nothing lost."""

from __future__ import annotations

import random

import pytest

from gpuplan.models.affinity import LocalityPreference, Spread
from gpuplan.models.cluster import Level
from gpuplan.models.policy.policy import Policy
from gpuplan.models.problem.jobs import LocalityRule
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.rounding.swap_repair import distribute_sites
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build


@pytest.fixture(scope="module")
def ledger():
    """Twelve nodes in four racks of three."""
    nodes = [
        build.node(f"n{number:02}", region="eu", zone="a", rack=f"r{number // 3}") for number in range(12)
    ]
    job = build.job(
        gpus=1, replicas=2, locality=LocalityPreference(preferred=Level.RACK), spread=Spread(level=Level.RACK)
    )
    return Ledger(build_problem(build.snapshot(nodes=nodes, jobs=[job]), Policy()))


def sites(*nodes):
    return [ReplicaSite(node, (number,)) for number, node in enumerate(nodes)]


def racks(hand):
    return sorted(site.node // 3 for site in hand)


def test_sites_are_dealt_in_order_where_domains_do_not_matter(ledger):
    hands, rest = distribute_sites(ledger, LocalityRule(), sites(0, 1, 2, 3, 4), 2, 2, 2)

    assert [[site.node for site in hand] for hand in hands] == [[0, 1], [2, 3]]
    assert [site.node for site in rest] == [4]


def test_elastic_jobs_share_what_there_is_evenly(ledger):
    hands, rest = distribute_sites(ledger, LocalityRule(), sites(*range(7)), 2, 1, 5)

    assert [len(hand) for hand in hands] == [4, 3]
    assert rest == []


def test_too_few_sites_for_so_many_jobs_are_dealt_to_none(ledger):
    assert distribute_sites(ledger, LocalityRule(), sites(0, 1, 2), 2, 2, 2) == ([], sites(0, 1, 2))


@pytest.mark.slow
def test_whatever_can_be_spread_is_spread():
    """As many of a domain as jobs times most: every deal keeps the spread."""
    rules = LocalityRule(spread=Level.NODE, most=2)
    for seed in range(200):
        draw = random.Random(seed)
        jobs, size = draw.randint(1, 4), draw.randint(2, 6)
        room = [node for node in range(6) for _ in range(jobs * rules.most)]
        nodes = [build.node(f"n{number}") for number in range(6)]
        job = build.job(gpus=1, spread=Spread(max=2))
        ledger = Ledger(build_problem(build.snapshot(nodes=nodes, jobs=[job]), Policy()))
        taken = sites(*draw.sample(room, min(len(room), jobs * size)))

        hands, rest = distribute_sites(ledger, rules, taken, jobs, size, size)

        assert sorted((site for hand in (*hands, rest) for site in hand), key=lambda site: site.gpus) == taken
        assert all(ledger.domains.satisfies(rules, hand) for hand in hands), seed


def test_jobs_get_sites_close_together(ledger):
    rules = LocalityRule(preferred=Level.RACK)

    # Racks of 3, 2 and 1 sites: one job fits the largest alone, the other takes what is left.
    hands, rest = distribute_sites(ledger, rules, sites(0, 6, 1, 3, 2, 4), 2, 3, 3)

    assert [racks(hand) for hand in hands] == [[0, 0, 0], [1, 1, 2]]
    assert rest == []


def test_job_takes_the_tightest_domain_that_has_enough(ledger):
    rules = LocalityRule(preferred=Level.RACK)

    hands, _ = distribute_sites(ledger, rules, sites(0, 1, 2, 3, 4), 1, 2, 2)

    assert [racks(hand) for hand in hands] == [[1, 1]]


def test_hand_in_two_domains_of_a_required_level_keeps_no_rule(ledger):
    rules = LocalityRule(required=Level.RACK)

    assert ledger.domains.satisfies(rules, sites(0, 1, 2))
    assert not ledger.domains.satisfies(rules, sites(0, 3))
