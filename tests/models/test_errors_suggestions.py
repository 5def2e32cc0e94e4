"""What was perhaps meant by a name that nothing bears."""

from __future__ import annotations

from gpuplan.models.errors import Suggestions, truncated_names


def test_suggestions_stop_after_so_many_questions():
    near = Suggestions(questions=2)

    assert [near.hint("reserch", ["research"]) for _ in range(3)] == [
        "\n  Maybe 'research' was meant."
    ] * 2 + [""]


def test_long_lists_are_cut_short():
    assert truncated_names(f"q{number:02}" for number in range(99)).endswith("q18, q19 and 79 more")
    assert truncated_names(["b", "a"]) == "a, b"
