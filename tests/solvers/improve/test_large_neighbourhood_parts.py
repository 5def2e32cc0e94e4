"""Search by partition: parts are solved at once, and what they find together is a better plan."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from gpuplan.models.plan.solution import DesiredState
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.improve import large_neighbourhood
from gpuplan.solvers.improve.large_neighbourhood import improve_by_lns, improve_partitions
from gpuplan.solvers.interface import Budget, Headroom
from gpuplan.solvers.params.improve import LnsParams, PartitionParams
from gpuplan.solvers.params.search import SearchParams
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged

SEEDS = range(10)


MAKERS = [instances.everything, instances.everything_mixed]


def budget(seconds=60.0, ticks=None):
    return Budget(time.monotonic() + seconds, 2, ticks=ticks)


def posed(instance):
    return build_problem(instance.snapshot, instance.policy)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS[:4])
@pytest.mark.parametrize("make", MAKERS)
def test_asking_about_all_parts_never_loses_nor_breaks_a_rule(make, seed):
    instance = make(seed)
    ledger = greedy(posed(instance))
    running = instance.snapshot.running_placements
    base = judged(instance.snapshot, instance.policy, DesiredState(running)).objective
    before, told = ledger.objective, []

    improve_partitions(ledger, 2, budget(5.0), lambda: told.append(ledger.objective))

    verification = judged(instance.snapshot, instance.policy, target_of(ledger, running))
    assert verification.violations == ()
    assert verification.objective == base + ledger.objective
    assert ledger.objective >= before
    assert told == sorted(told)


@pytest.mark.slow
def test_asking_about_all_parts_finds_what_greedy_missed():
    """Each part has a node, on which a large job pays more than the small one that greedy prefers."""
    models = ("A100-80GB", "H100-80GB")
    jobs = [
        build.job(f"{size}-{model}", gpus=gpus, priority=priority, gpu_models={model: 1})
        for model in models
        for size, gpus, priority in (("small", 1, 2), ("large", 2, 1))
    ]
    snapshot = build.snapshot(nodes=[build.node(model, model=model, gpus=2) for model in models], jobs=jobs)
    ledger = greedy(build_problem(snapshot, instances.POLICY))
    assert {each.job[:5] for each in target_of(ledger, ()).placements} == {"small"}

    improve_partitions(ledger, 2, budget(), lambda: None)

    assert {each.job for each in target_of(ledger, ()).placements} == {f"large-{model}" for model in models}


def test_with_ticks_the_outcome_does_not_depend_on_the_number_of_workers():
    instance = instances.everything(7)
    running = instance.snapshot.running_placements
    found = []
    for workers in (1, 2):
        ledger = greedy(posed(instance))
        improve_partitions(ledger, 2, Budget(time.monotonic() + 600, workers, ticks=3), lambda: None)
        found.append(target_of(ledger, running))

    assert found[0] == found[1]


def test_where_nothing_can_be_gained_one_round_is_enough(monkeypatch):
    rounds = []
    monkeypatch.setattr(large_neighbourhood, "_improve_each", lambda *_: rounds.append("done"))
    ledger = greedy(build_problem(build.snapshot(), instances.POLICY))

    improve_partitions(ledger, 1, Budget(time.monotonic() + 1), lambda: None)

    assert ledger.objective == 0
    assert rounds == ["done"]


@pytest.mark.parametrize(("milli", "proven"), [(300, [0]), (250, [])])
def test_odd_shares_are_first_repacked_on_all_nodes_and_parts_asked_only_if_that_proves_nothing(
    monkeypatch, milli, proven
):
    asked = []
    monkeypatch.setattr(large_neighbourhood, "improve_partitions", lambda *_: asked.append("parts"))
    jobs = [build.job(f"j{number}", milli=milli) for number in range(9)]
    snapshot = build.snapshot(nodes=[build.node(name, gpus=1) for name in ("a", "b")], jobs=jobs)
    problem = build_problem(snapshot, instances.POLICY)
    params = SearchParams(
        partition=PartitionParams(gpus_per_part=1, many_jobs=1), lns=LnsParams(enabled=False)
    )
    told = []

    improve_by_lns(problem, (), target_of(greedy(problem), ()), replace(budget(), params=params), told.append)

    assert [message.points for message in told if isinstance(message, Headroom)] == proven
    assert asked == ([] if proven else ["parts"])
