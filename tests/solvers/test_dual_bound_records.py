"""
No plan beats a bound, and no bound denies a plan, from whatever solver and time.

GPUPLAN_TIGHTEN=60 lets each solver search each case for a minute and writes down what got tighter.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from gpuplan.solvers import SOLVERS
from gpuplan.solvers.exact_run import ExactRun
from tests.support.oracles import bound_records
from tests.support.oracles.bound_records import Found, Record

TIGHTEN = float(os.environ.get("GPUPLAN_TIGHTEN", "0"))
SECONDS = TIGHTEN or 1.0


@pytest.mark.slow
@pytest.mark.timeout(3600 if TIGHTEN else 600)
@pytest.mark.parametrize("name", bound_records.names())
def test_nothing_found_contradicts_what_was_found_before(name):
    known = bound_records.load(name)
    digest = bound_records.digest(known.source)
    if TIGHTEN and digest != known.digest:
        known = Record(known.source, digest)
    assert digest == known.digest, f"{known.source} has changed: run with GPUPLAN_TIGHTEN=60"

    found = bound_records.search(known.source, SECONDS, ("milp", "cpsat") if TIGHTEN else ("milp",))

    tightened = known.tightened(found)
    assert known.contradicted(found) == []
    assert tightened.contradicted(found) == []
    if TIGHTEN and tightened != bound_records.load(name):
        bound_records.save(name, tightened)


def test_there_is_a_record_of_every_scenario():
    scenarios = {path.name for path in (bound_records.ROOT / "scenarios").iterdir() if path.is_dir()}

    assert scenarios <= set(bound_records.names())
    assert len(bound_records.names()) >= len(scenarios) + 3


def test_most_records_are_closed():
    """Else they would contradict nothing: a bound far above all plans is no check of plans."""
    known = [bound_records.load(name) for name in bound_records.names()]

    assert all(None not in (each.objective, each.bound) and each.objective <= each.bound for each in known)
    assert sum(each.objective == each.bound for each in known) >= len(known) * 2 // 3


def test_plan_above_the_bound_and_bound_below_a_plan_are_noticed():
    record = Record("somewhere", "", objective=10, bound=12)

    assert record.contradicted(Found({"milp": 12}, {"milp": 10})) == []
    assert len(record.contradicted(Found({"milp": 13}, {}))) == 1
    assert len(record.contradicted(Found({}, {"milp": 9}))) == 1


def test_record_only_gets_tighter():
    record = Record("somewhere", "", objective=10, bound=12)

    assert record.tightened(Found({"milp": 9}, {"milp": 13})) == record
    assert record.tightened(Found({"milp": 11}, {"milp": 13})) == replace(record, objective=11)
    assert record.tightened(Found({}, {"milp": 11, "cpsat": 12})) == replace(record, bound=11)
    assert Record("new", "").tightened(Found({"milp": 3}, {})) == Record("new", "", objective=3)


def test_solver_that_claims_too_low_a_bound_is_noticed(monkeypatch):
    """The portfolio has to believe it that nothing beats greedy's plan; the record knows better."""
    name = "consolidate-and-close"
    known = bound_records.load(name)
    monkeypatch.setitem(SOLVERS, "milp", f"{bound_records.__name__}:bound_of_the_hint")
    # A better plan than greedy's, placed meanwhile, would show what the claim is worth.
    monkeypatch.setattr(ExactRun, "_has_time", lambda _: False)

    found = bound_records.search(known.source, 30.0)

    assert [each for each in known.contradicted(found) if each.startswith("milp claims")]
