"""The structure of the product in figures."""

import pytest

from benchmarks.house import EXACT, ROOT, House
from benchmarks.plan_calls import calls_of_plan

FILES = {
    "models/base.py": '"""Base."""\n\n# Why.\nLIMIT = 5\n\n\nclass Row:\n    """Row."""\n',
    "solvers/rows.py": "LIMIT = 1_000\nNAME = 'x'\n_SHARE: float = 0.5 + 1\n\n\nclass Row:\n    power = 1\n",
    "planner/packing.py": (
        '"""For whoever waits: nobody."""\nPAIR = (1, 2)\n\n\nclass _Row:\n    ScaleDown = 3\n'
    ),
}


@pytest.fixture
def house(tmp_path):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir()
        path.write_text(text)
    return House(tmp_path)


def values(measures):
    return {measure.name: measure.value for measure in measures}


def test_lines_are_counted_without_comments_and_docstrings(house):
    found = values(house.sizes())

    assert found["product files"] == "3"
    assert found["lines"] == "21"
    assert found["lines of code"] == "10"
    assert found["lines that are comments"] == "4.8 %"
    assert found["most files in a folder"] == "1 (models)"
    assert found["files of at most 60 lines, packages apart"] == "3"


def test_a_public_class_name_counts_once_however_often_it_is_used(house):
    found = values(house.names())

    assert found["public class names with two meanings"] == "1 (Row)"
    assert found["file names that end in -ing"] == "1 (packing)"


def test_a_line_with_two_such_words_counts_once(house):
    assert values(house.words()) == {"lines with words for persons": "1"}


def test_numbers_at_module_level_of_solvers_are_tuned_unless_listed(house):
    found = "2 (solvers/rows.py LIMIT, solvers/rows.py _SHARE)"
    assert values(house.constants()) == {"tuned numbers outside of the parameters": found}


@pytest.mark.slow
def test_every_tuned_number_is_a_parameter_and_no_other_is_listed():
    assert House(ROOT).numbers() == EXACT


@pytest.mark.slow
def test_no_files_of_the_product_import_each_other():
    """Not for types either. Contracts of the linter keep packages apart, and not the files within one."""
    assert values(House(ROOT).imports())["circles of imports"] == "0"


def test_files_that_mention_a_feature_are_touched(house):
    assert list(values(house.touched()).values()) == ["1", "1"]


def test_a_constraint_is_made_to_hold_where_code_names_it_and_not_where_text_does(house):
    (house.root / "models/words.py").write_text('"""Power."""\n\nNAME = "power"  # power\n')
    (house.root / "planner/watts.py").write_text("WATTS = 1\n")

    assert house.making_hold() == ["solvers/rows.py"]
    assert list(values(house.example()).values()) == ["2", "1"]


def test_enumerations_with_a_move_are_counted(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models/kinds.py").write_text(
        "class Change(StrEnum):\n    MOVED = 'moved'\n\n\nclass Step(StrEnum):\n    REMOVED = 'removed'\n"
    )

    assert values(House(tmp_path).forms()) == {"enumerations with a move of a job": "1 (Change)"}


def test_the_ledger_has_few_public_methods_and_no_base():
    found = values(House(ROOT).forms())

    assert found["base classes of the ledger"] == "0"
    assert int(found["public methods and properties of the ledger"]) <= 25


@pytest.mark.slow
def test_files_are_counted_that_run_in_a_plan_and_that_get_its_snapshot():
    calls = calls_of_plan(ROOT, "scenarios/quickstart", "train-ranker", ("models",))

    assert 0 < calls.with_snapshot < calls.files < len(list((ROOT / "models").rglob("*.py")))
    assert calls.returns > 0
    assert {"Job", "JobClass", "JobCandidate", "Waiting"} <= set(calls.forms)
    assert "Node" not in calls.forms
