"""
No job is disturbed for nothing, in any plan.

Of every stop, shrink and move: if it alone is taken back, either the plan breaks a rule or it is worth no
more; and if the job that took the places it left is taken back with it, the plan is worth no more either.
"""

from __future__ import annotations

from collections import Counter

import pytest

from gpuplan.models.placement import same_holdings
from gpuplan.models.plan.solution import DesiredState
from gpuplan.solvers import pipeline
from tests.support.harness.portfolio_answers import answer
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances
from tests.support.strategies.random_targets import judged, sorted_by_job

pytestmark = pytest.mark.slow

PLANS = 1000 if EVERY_SEED else 500
SOLVED = PLANS if EVERY_SEED else 60
"""Plans that a solver makes, which takes longer."""


def disturbed(snapshot, target):
    """Running jobs that are stopped, shrunk or moved."""
    after = {each.job: each.replicas for each in target.placements}
    for before in snapshot.running_placements:
        now = after.get(before.job, ())
        grown = len(now) > len(before.replicas)
        if not grown and not same_holdings(now, before.replicas):
            yield before


def places_left(before, target):
    """Nodes on which a disturbed job gives something up."""
    now = next((each.replicas for each in target.placements if each.job == before.job), ())
    return {replica.node for replica in before.replicas if replica not in now}


def restored(target, *placements):
    """The target with running jobs as they are now; no node they are on is removed."""
    names = {each.job for each in placements}
    nodes = {replica.node for each in placements for replica in each.replicas}
    return DesiredState(
        sorted_by_job((*(each for each in target.placements if each.job not in names), *placements)),
        target.added,
        tuple(name for name in target.removed if name not in nodes),
    )


def without_followers(snapshot, target, nodes):
    """The target without new replicas on some nodes: starts there wait, running jobs stay as they are."""
    running = {each.job: each for each in snapshot.running_placements}
    kept = []
    for each in target.placements:
        before = running.get(each.job)
        old = before.replicas if before else ()
        new = [replica for replica in each.replicas if replica not in old]
        if not any(replica.node in nodes for replica in new):
            kept.append(each)
        elif before:
            kept.append(before)
    return DesiredState(sorted_by_job(kept), target.added, target.removed)


def check_plan(instance, target, tally):
    snapshot, policy = instance.snapshot, instance.policy
    value = judged(snapshot, policy, target).objective
    after = {each.job: each.replicas for each in target.placements}
    for before in disturbed(snapshot, target):
        alone = judged(snapshot, policy, restored(target, before))
        assert alone.violations or alone.objective <= value, f"{before.job} is disturbed for nothing"

        followed = without_followers(snapshot, target, places_left(before, target))
        both = judged(snapshot, policy, restored(followed, before))
        assert both.violations or both.objective <= value, f"{before.job} costs more than it brings"

        now = after.get(before.job, ())
        kind = "stopped" if not now else "shrunk" if len(now) < len(before.replicas) else "moved"
        tally[kind] += 1
        tally["breaks a rule alone"] += bool(alone.violations)
        tally["can be weighed"] += not both.violations


def check_plans(seeds, solvers):
    tally = Counter()
    for seed in seeds:
        make = instances.everything_mixed if seed % 2 else instances.everything
        instance = make(seed)
        try:
            solution = answer(instance.snapshot, instance.policy, solvers=solvers, seconds=20.0)
            check_plan(instance, solution.target, tally)
        except AssertionError as error:
            raise AssertionError(f"{make.__name__}({seed}): {error}") from error
    return tally


def test_no_job_is_disturbed_for_nothing_by_greedy(monkeypatch):
    monkeypatch.setattr(pipeline, "_run_improvers", lambda _: None)

    tally = check_plans(range(PLANS), ())

    assert min(tally[kind] for kind in ("stopped", "shrunk", "moved")) >= 1, tally
    assert tally["can be weighed"] >= 20, tally


def test_no_job_is_disturbed_for_nothing_by_a_solver():
    tally = check_plans(range(SOLVED), ("cpsat",))

    assert tally["stopped"] >= min(20, SOLVED // 5), tally
    assert min(tally[kind] for kind in ("shrunk", "moved")) >= 1, tally
