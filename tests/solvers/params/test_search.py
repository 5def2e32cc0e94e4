"""Parameters of the search: each is documented, all reach the solvers, and no switch breaks a rule."""

from __future__ import annotations

import ast
import pickle
import re
from dataclasses import fields, is_dataclass
from functools import partial
from pathlib import Path

import pytest

from benchmarks.ablate import without
from gpuplan.models.formulation.params import FormulationParams
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy_orders
from gpuplan.solvers.params.improve import LnsParams
from gpuplan.solvers.params.placement import GreedyParams, PlacementParams
from gpuplan.solvers.params.search import SearchParams
from gpuplan.solvers.portfolio import Limits, solve
from tests.support.harness.switches import switches
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import instances, time_strategies

ROOT = Path(__file__).parents[3]
FILES = [*sorted((ROOT / "solvers" / "params").glob("*.py")), ROOT / "models" / "formulation" / "params.py"]
MAKE = {
    "everything": instances.everything,
    "everything-mixed": instances.everything_mixed,
    "timed": time_strategies.instance,
}
ORIGIN = re.compile(
    r"no record of the (case|number)|decision \d{4}|docs/benchmarks\.md|sizes S to XL", re.IGNORECASE
)
"""Where a number comes from."""


def described(path):
    """(field, its annotation, its docstring) of all dataclasses of a file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, after in zip(node.body, [*node.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign):
                text = ast.literal_eval(after.value) if isinstance(after, ast.Expr) else ""
                yield (
                    f"{node.name}.{ast.unparse(field.target)}",
                    ast.unparse(field.annotation),
                    " ".join(text.split()),
                )


def planned(one, params):
    """The verified plan of an instance, found by a fixed amount of work."""
    limits = Limits(600.0, ("milp",), ticks=2, params=params)
    check = partial(verify_target, one.snapshot, one.policy)
    running = one.snapshot.running_placements
    solution = solve(build_problem(one.snapshot, one.policy), running, limits, check)
    assert check(solution.target).violations == ()
    return solution


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_each_number_says_what_it_means_and_where_it_comes_from(path):
    for name, kind, text in described(path):
        if not kind.endswith("Params"):
            assert text, name
        if kind.startswith(("int", "float", "tuple")):
            assert ORIGIN.search(text), name


def test_all_parameters_are_frozen_and_can_be_pickled():
    def parts(params):
        yield params
        for field in fields(params):
            if is_dataclass(value := getattr(params, field.name)):
                yield from parts(value)

    assert all(each.__dataclass_params__.frozen for each in parts(SearchParams()))
    params = SearchParams(formulation=FormulationParams(max_patterns=3), lns=LnsParams(nodes=4))
    assert pickle.loads(pickle.dumps(params)) == params


def test_the_budget_of_a_solver_has_the_parameters_of_the_limits():
    params = SearchParams(lns=LnsParams(nodes=4))

    assert Limits(1.0, (), params=params).budget(0.0).params is params


def test_orders_that_are_switched_off_are_not_tried():
    one = time_strategies.instance(1)
    problem = build_problem(one.snapshot, one.policy)
    assert problem.slots > 1

    def orders(**switched):
        return greedy_orders(problem, PlacementParams(greedy=GreedyParams(**switched)))

    assert any(each.list_scheduling for each in orders())
    assert not any(each.list_scheduling for each in orders(list_scheduling=False))
    assert not any(each.gangs_first for each in orders(gangs_first=False))
    assert not any(each.resuming for each in orders(resuming=False))


@pytest.mark.slow
@pytest.mark.parametrize("switch", list(switches(SearchParams())))
@pytest.mark.parametrize("group", MAKE)
def test_no_switch_breaks_a_rule_or_a_bound(group, switch):
    for seed in range(3 if EVERY_SEED else 1):
        one = MAKE[group](seed)
        whole, less = planned(one, SearchParams()), planned(one, without(SearchParams(), switch))

        assert max(whole.objective, less.objective) <= min(whole.bound, less.bound)


@pytest.mark.slow
@pytest.mark.parametrize("group", MAKE)
def test_with_all_switches_off_a_plan_breaks_no_rule(group):
    params = SearchParams()
    for switch in switches(params):
        params = without(params, switch)

    one = MAKE[group](1)
    assert planned(one, params).objective <= planned(one, SearchParams()).bound
