"""The structure of the product in figures."""

import pytest

from benchmarks.house import EXACT, ROOT, House

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
