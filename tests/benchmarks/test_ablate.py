"""What improvers earn: each switch is measured, and the table tells medians and what earns too little."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from benchmarks import ablate
from benchmarks.__main__ import main
from benchmarks.ablate import IMPROVERS, INSTANCES, measure_one, tables, without
from benchmarks.instances import Instance
from benchmarks.records import read
from gpuplan.solvers.params.search import SearchParams
from tests.support.harness.switches import switches


def record(improver, case, loss, seed=1):
    return {"improver": improver, "case": case, "loss": loss, "seed": seed}


def test_each_switch_of_the_parameters_is_measured_and_on_by_default():
    found = list(switches(SearchParams()))

    assert sorted(each.parameter for each in IMPROVERS.values()) == sorted(found)


@pytest.mark.parametrize("improver", IMPROVERS)
def test_one_improver_is_left_out_and_nothing_else(improver):
    params = without(SearchParams(), IMPROVERS[improver].parameter)

    off = [path for path in switches(params) if without(params, path) == params]
    assert off == [IMPROVERS[improver].parameter]


def test_a_title_names_one_instance():
    assert len({each.title for each in INSTANCES}) == len(INSTANCES)


def test_an_improver_of_later_starts_is_not_measured_on_a_single_slot():
    assert not IMPROVERS["pull forward"].applies_to(Instance("S", 5))
    assert IMPROVERS["pull forward"].applies_to(Instance("S", 5, slots=12))
    assert not IMPROVERS["neighbourhoods"].applies_to(Instance("S", 5, slots=12))
    assert IMPROVERS["swap repair"].applies_to(Instance("S", 5))


def test_the_loss_is_a_share_of_what_the_plan_brings_beyond_changing_nothing(monkeypatch, tmp_path):
    def plan(_instance, params, ticks):
        return {"objective": 20 if params == SearchParams() else 5, "unchanged": -130, "ticks": ticks}

    monkeypatch.setattr(ablate, "plan", plan)

    log = tmp_path / "log.jsonl"
    found = measure_one(Instance("S", 5), ("swap repair", "pull forward", "column generation"), 7, log)

    assert [(each["improver"], each["loss"], each["ticks"]) for each in found] == [
        ("swap repair", 0.1, 7),
        ("column generation", 0.1, None),
    ]
    assert [each["improver"] for each in read(log, "ablate")] == ["swap repair", "column generation"]


def test_a_table_shows_the_median_and_the_worst_and_names_what_earns_too_little():
    shown = tables(
        [record("a", "S", loss, seed) for seed, loss in enumerate((0.0, 0.02, 0.01))]
        + [record("b", "S", 0.0009), record("b", "M", -0.5)]
    )

    assert "| without | S: median (worst) | M: median (worst) |" in shown
    assert "| a | 1.000 % (2.000 %) | – |" in shown
    assert "| b | 0.090 % (0.090 %) | -50.000 % (-50.000 %) |" in shown
    assert shown.endswith("Less than 0.1 % in each of these cases: b.\n")


def test_case_and_improver_are_chosen(monkeypatch):
    asked = []

    def measure(instances, names, seeds, *, ticks, log):
        asked.append(([each.title for each in instances], list(names), seeds, ticks, log))
        return [record("partition", "XL", 0.0)]

    monkeypatch.setattr(ablate, "measure", measure)

    arguments = ["ablate", "--only", "XL", "--improver", "partition", "--seeds", "4,5", "--ticks", "3"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)

    assert asked == [(["XL"], ["partition"], [4, 5], 3, None)]
    assert "| partition | 0.000 % (0.000 %) |" in done.output
