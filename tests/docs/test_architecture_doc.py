"""docs/architecture.md names files that are there."""

from __future__ import annotations

import pytest

from benchmarks.house import ROOT, House, paths_in

DOCUMENT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_file_that_is_named_is_there():
    named = paths_in(DOCUMENT)

    assert len(named) > 100
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.slow
def test_the_files_of_the_worked_example_are_all_that_name_it_in_the_code():
    example = DOCUMENT.split("### An example: power caps of racks")[1].split("\n\n")

    assert sorted(paths_in(example[2])) == sorted(House(ROOT).making_hold())


@pytest.mark.slow
def test_the_files_of_an_action_about_nodes_are_all_that_know_one():
    table = DOCUMENT.split("**An action about nodes.**")[1].split("\n\n")[1]

    assert sorted(paths_in(table)) == sorted(House(ROOT).knowing_node_action())


def test_paths_are_read_with_their_braces():
    assert paths_in("`a/{b,c}/{d,e}.py`, `f.py`, `x.y` and `tests/oracle`") == [
        *("a/b/d.py", "a/b/e.py", "a/c/d.py", "a/c/e.py"),
        "tests/oracle",
    ]
