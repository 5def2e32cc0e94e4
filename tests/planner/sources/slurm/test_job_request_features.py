"""Constraints on features, as the controller reads them."""

from __future__ import annotations

import pytest

from gpuplan.planner.sources.slurm.job_request import UnknownConstraintError, matcher, plain_features


@pytest.mark.parametrize(
    ("text", "there", "suits"),
    [
        ("a|b", "b", True),
        ("a|b", "c", False),
        # From left to right, as a controller of 22.05 did it.
        ("a|b&c", "a", False),
        ("a|b&c", "a c", True),
        ("a&b|c", "c", True),
        ("(a|b)&c", "b c", True),
        ("a|(b&c)", "a", True),
        ("a&(b|(c&d))", "a c d", True),
        ("a&(b|(c&d))", "a c", False),
        ("[a|b]", "a", True),
        ("a*2", "a", True),
        (" a & b ", "a b", True),
    ],
)
def test_a_constraint_on_one_node(text, there, suits):
    assert matcher(text, 1)(frozenset(there.split())) == suits


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        *(("[a|b]", 2), ("[a*1&b*1]", 1), ("[a*1&b*1]", 2), ("a*2", 3), ("!a", 1), ("(a|b", 1), ("a|b)", 1)),
        *(("a&", 1), ("", 1), ("a b", 1), ("(", 1), ("[a|b)", 1), ("a%b", 1)),
    ],
)
def test_a_constraint_that_is_more_than_one_on_each_node_is_refused(text, nodes):
    with pytest.raises(UnknownConstraintError):
        matcher(text, nodes)


@pytest.mark.parametrize(
    ("text", "listed"), [("a&b-2", ["a", "b-2"]), ("a", ["a"]), ("a|b", None), ("a*2", None)]
)
def test_a_plain_list_of_features(text, listed):
    assert plain_features(text) == listed
