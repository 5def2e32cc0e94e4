from __future__ import annotations

import sys

import pytest

from gpuplan.planner import doctor
from gpuplan.planner.doctor import DoctorCheck, check_solver_chain
from gpuplan.solvers import SOLVERS
from tests.support.doubles.broken_solvers import __name__ as doubles

pytestmark = pytest.mark.slow


@pytest.fixture
def findings(monkeypatch):
    """What is found, by subject, where some solvers are replaced by doubles."""

    def found(**replaced):
        for name, double in replaced.items():
            monkeypatch.setitem(SOLVERS, name, f"{doubles}:{double}")
        return {finding.subject: finding for finding in doctor.run_checks()}

    return found


def test_each_solver_tells_its_library_and_version(findings):
    found = findings()

    assert found["solver milp"].detail.startswith("highspy 1.")
    assert found["solver cpsat"].detail.startswith("ortools 9.")
    assert found["solver cbc"].detail.startswith("pulp 3.")
    assert found["SCIP by MathOpt"].works
    assert found["solvers together"].detail == "both import orders"
    assert found["a plan uses"] == DoctorCheck(
        "a plan uses", works=True, detail="milp, then cpsat, at last greedy"
    )


@pytest.mark.parametrize(
    ("double", "words"),
    [
        ("crash", "ended with code -6"),
        ("nothing", "gave up"),
        ("low_bound", "OPTIMAL, bound 1 instead of 13"),
    ],
)
def test_a_solver_that_fails_is_told_with_its_reason_and_what_plans_use(findings, double, words):
    found = findings(milp=double)

    assert found["solver milp"].works is False
    assert words in found["solver milp"].detail
    assert found["a plan uses"].works
    assert found["a plan uses"].detail == "cpsat, at last greedy; milp fails"


def test_without_an_exact_solver_of_the_policy_a_plan_is_greedys():
    assert check_solver_chain(["cbc"]).detail == "greedy alone; milp fails; cpsat fails"
    assert "solvers: [cbc]" in check_solver_chain(["cbc"]).advice
    assert check_solver_chain(["cbc"]).works is check_solver_chain([]).works is False
    assert "constraints.txt" in check_solver_chain([]).advice


def test_scip_is_not_needed(monkeypatch):
    monkeypatch.setattr(doctor, "_SCIP", "import no_such_module")

    found = doctor._scip()

    assert found.works is None
    assert "No module named 'no_such_module'" in found.detail


@pytest.mark.parametrize("order", ["_HIGHS_FIRST", "_ORTOOLS_FIRST"])
def test_each_order_of_imports_counts(monkeypatch, order):
    monkeypatch.setattr(doctor, order, "raise ImportError('undefined symbol')")

    found = doctor._coexistence()

    assert found.works is False
    assert "first: ImportError: undefined symbol" in found.detail
    assert found.detail.count("first") == 1


def test_a_check_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(doctor, "_SECONDS", 0.2)
    monkeypatch.setattr(doctor, "_NVML", "import time; time.sleep(600)")

    assert doctor._nvml().works is None


def test_modules_in_the_users_folder_are_not_imported(monkeypatch, tmp_path):
    (tmp_path / "highspy.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)

    assert doctor._coexistence().works, sys.path
