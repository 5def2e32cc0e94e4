"""Conditions on labels of nodes."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gpuplan.models.affinity import NodeMatch


@pytest.mark.parametrize(
    ("operator", "values", "meets"),
    [
        ("In", ["a", "b"], {"a": True, "c": False, None: False}),
        ("NotIn", ["a", "b"], {"a": False, "c": True, None: True}),
        ("Exists", [], {"a": True, "": True, None: False}),
        ("DoesNotExist", [], {"a": False, "": False, None: True}),
    ],
)
def test_a_condition_compares_a_label(operator, values, meets):
    match = NodeMatch(key="k", operator=operator, values=values)

    assert {label: match.holds({} if label is None else {"k": label}) for label in meets} == meets


@pytest.mark.parametrize(("operator", "values"), [("In", []), ("Exists", ["a"]), ("NotIn", [])])
def test_values_stand_where_they_are_compared(operator, values):
    with pytest.raises(ValidationError, match=r"expected (no )?values with operator"):
        NodeMatch(key="k", operator=operator, values=values)
