"""docs/plan-format.md tells of every action, precondition, reason and figure there is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from gpuplan.models.plan.actions import Action
from gpuplan.models.plan.plan import Metrics, Plan, SolutionSummary
from gpuplan.models.plan.precondition import Precondition
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import SolverName
from gpuplan.planner.rollback.rollback import SOLVER
from gpuplan.solvers import SOLVERS
from gpuplan.solvers.incumbent import LAST_PLAN, NO_SOLVER
from gpuplan.solvers.pipeline import GREEDY, LNS
from gpuplan.solvers.solver_child import RELAXATION

DOCUMENT = (Path(__file__).parents[2] / "docs" / "plan-format.md").read_text(encoding="utf-8")


def kinds(union, field):
    """The constants by which the members of a tagged union are told apart."""
    members = get_args(get_args(union)[0])
    return sorted(member.model_fields[field].default for member in members)


def section(title):
    return DOCUMENT.split(f"## {title}\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("name", kinds(Action, "type"))
def test_every_action_is_in_the_document(name):
    assert re.search(rf"^\| .*`{name}`.* \|", section("Actions"), re.MULTILINE)


@pytest.mark.parametrize("name", kinds(Precondition, "kind"))
def test_every_precondition_is_in_the_document(name):
    assert re.search(rf"^\| [^|]*`{name}`[^|]* \|", section("Actions"), re.MULTILINE)


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_is_in_the_document(code):
    assert f"| `{code}` |" in section("Reasons")


@pytest.mark.parametrize("name", Metrics.model_fields)
def test_every_figure_is_in_the_document(name):
    assert f"`{name}`" in section("Metrics")


@pytest.mark.parametrize("name", sorted(Plan.model_fields.keys() - {"format_version"}))
def test_every_part_of_a_plan_is_in_the_document(name):
    assert re.search(rf"`{name}(\[\]|\.\w+)?`", section("Fields"))


@pytest.mark.parametrize("name", SolutionSummary.model_fields)
def test_every_part_of_a_solution_is_in_the_document(name):
    assert re.search(rf"`(solution)?\.{name}`", section("Fields"))


def test_every_source_of_a_plan_is_in_the_document():
    told = re.search(r"^\| `solution\.solver` \| (.*) \|$", section("Fields"), re.MULTILINE)[1]

    assert {*SolverName} == SOLVERS.keys()
    assert set(re.findall(r"`([^`]+)`", told)) == {
        *SolverName,
        GREEDY,
        LNS,
        RELAXATION,
        LAST_PLAN,
        NO_SOLVER,
        SOLVER,
    }


def test_no_reason_is_in_the_document_that_is_not_in_the_code():
    told = re.findall(r"^\| `([A-Z]\w+)` \|", section("Reasons"), re.MULTILINE)

    assert sorted(told) == sorted(ReasonCode)
