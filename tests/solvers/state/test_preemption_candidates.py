"""What making room on a node costs: on paper as on the ledger, and never less than its lower bound."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpuplan.models.problem.jobs import ClassRole
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.heuristics.preemption import PreemptionSearch
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.state.preemption_candidates import PreemptionCosts
from tests.support.strategies import instances

pytestmark = pytest.mark.slow

SEEDS = 240
FEATURES = ("drain", "filters", "overcommit", "racks", "sharing")
"""Such as change nothing but what jobs are worth and what is free."""


def questions(*more, guarantees=False):
    """A ledger, half full, with a class that would preempt and the jobs it may; many of them."""
    for seed in range(SEEDS):
        instance = instances.everything_mixed(seed, features=(*FEATURES, *more))
        prices = instance.policy.prices.model_copy(update={} if guarantees else {"nominal": 0})
        problem = build_problem(instance.snapshot, instance.policy.model_copy(update={"prices": prices}))
        draw, ledger = random.Random(seed), Ledger(problem)
        if draw.random() < 0.5:
            fill_free_capacity(ledger)
        preemption = PreemptionSearch(ledger)
        for index in draw.sample(range(len(problem.incumbents)), len(problem.incumbents) // 2):
            if draw.random() < 0.3:
                vacate.stop_incumbent(ledger, index)
        for index, job_class in enumerate(problem.classes):
            if job_class.role is ClassRole.START:
                for option in job_class.options:
                    nodes = ledger.feasibility.nodes_of(option)
                    yield (
                        ledger,
                        preemption,
                        index,
                        nodes[ledger.feasibility.rank_admits(ledger.tenants[index], nodes)],
                    )


def test_a_trade_brings_no_more_than_its_bound_and_often_just_that():
    """With guarantees that its victims and the job hold in common, or each alone."""
    compared, exact, hopeless = 0, 0, 0
    for ledger, preemption, index, nodes in questions(guarantees=True):
        options = ledger.problem.classes[index].options
        for node in nodes.tolist() if ledger.problem.classes[index].minimum == 1 else ():
            _, gone = preemption.price(index, node)
            mark, before = ledger.undo.mark(), ledger.objective
            bound, looser = preemption._gain_without(index, gone, before), preemption._worth(index)
            made = gone and all(preemption._evict(victim) for victim in gone)
            if made and any(placement.place(ledger, index, option, jobs=1) for option in options):
                gained = ledger.objective - before
                assert gained <= bound <= looser
                compared, exact = compared + 1, exact + (gained == bound)
                hopeless += bound <= 0 < looser - sum(victim.loss for victim in gone)
            ledger.undo.rollback(mark)
    assert compared >= 30
    assert exact >= 15
    assert hopeless >= 5


def test_room_made_on_paper_is_what_the_ledger_says():
    compared = 0
    for ledger, preemption, index, nodes in questions("mig"):
        tenant = ledger.tenants[index]
        for node in nodes.tolist():
            loss, gone = preemption.price(index, node)
            by_trial = preemption.loss_by_trial(index, node, preemption.victims.there(node, tenant))
            assert (loss, gone) == by_trial
            compared += loss < np.inf
    assert compared >= 100


def test_no_price_is_below_its_bound():
    compared = 0
    for ledger, preemption, index, nodes in questions():
        tenant = ledger.tenants[index]
        losses = preemption.victims.loss_lower_bounds(tenant, nodes)
        for node, least in zip(nodes.tolist(), losses.tolist(), strict=True):
            loss, gone = preemption.price(index, node)
            whole = all(not victim.shrinks for victim in gone)
            if whole and loss < np.inf:
                assert least <= loss + 1e-6
                compared += 1
    assert compared >= 100


def test_offers_kept_up_to_date_are_offers_made_anew():
    changed = 0
    for ledger, preemption, index, nodes in questions():
        tenant, mark = ledger.tenants[index], ledger.undo.mark()
        kept = PreemptionCosts(ledger, preemption.victims, tenant, nodes)
        for incumbent in range(len(ledger.problem.incumbents)):
            changed += vacate.stop_incumbent(ledger, incumbent)
        anew = PreemptionCosts(ledger, preemption.victims, tenant, nodes)

        assert kept.lower_bounds().tolist() == anew.lower_bounds().tolist()
        assert [bound for bound, _ in kept.cheapest_first()] == sorted(
            anew.lower_bounds()[anew.lower_bounds() < np.inf]
        )
        ledger.undo.rollback(mark)
    assert changed >= 100


def test_what_was_learnt_of_a_node_holds_until_it_changes():
    learnt = 0
    for ledger, preemption, index, nodes in questions():
        mark = ledger.undo.mark()
        whole = PreemptionCosts(ledger, preemption.victims, ledger.tenants[index], nodes)
        for node in nodes[:1].tolist():
            before = whole.lower_bounds()[0]
            whole.restricted_to(nodes[:1]).set_exact_loss(node, 12345.0)
            assert whole.lower_bounds()[0] == 12345.0

            ledger.capacity.touch(node)
            assert whole.lower_bounds()[0] == before
            learnt += 1
        ledger.undo.rollback(mark)
    assert learnt >= 100
