"""Consistency of queues: a tree of known parents, and guarantees that can be met."""

from __future__ import annotations

import pytest

from tests.support.builders.build import queue
from tests.support.builders.invalid_snapshots import found, only, world
from tests.support.output.golden import figures


def test_an_unknown_parent_is_told_with_a_near_one():
    assert found(world(queues=[queue("research"), queue("q", parent="reserch")])) == [
        (
            ("queues", 1, "parent"),
            ("q reserch research"),
        )
    ]


@pytest.mark.parametrize(
    ("parents", "position", "path"),
    [
        ({"q": "q"}, 0, "q -> q"),
        ({"c": "a", "b": "c", "a": "b"}, 2, "a -> b -> c -> a"),
        ({"A": "b", "b": "a", "a": "b"}, 2, "a -> b -> a"),
    ],
)
def test_a_cycle_of_queues_is_told_once_and_printed_from_its_first_name(parents, position, path):
    one = only(world(queues=[queue(name, parent=parent) for name, parent in parents.items()]))

    assert one.location == ("queues", position, "parent")
    assert f": {path};" in one.message


def test_two_cycles_are_told_both():
    queues = [queue(name, parent=parent) for name, parent in ("ab", "ba", "cd", "dc")]

    assert [location for location, _ in found(world(queues=queues))] == [
        ("queues", 0, "parent"),
        ("queues", 2, "parent"),
    ]


def test_a_long_cycle_is_cut_short():
    names = [f"q{number:03}" for number in range(500)]
    queues = [queue(name, parent=names[number - 1]) for number, name in enumerate(names)]

    one = only(world(queues=queues))

    assert len(one.message) < 300
    assert figures(one.message).startswith("q000 q000 q499 q498 ")


def test_a_guarantee_beyond_a_limit_is_told():
    quota = {"nominal": 2, "borrowing_limit": 0.5, "guarantee": 3}
    queues = [
        queue("top", nominal=4, guarantee=4.001),
        queue("q", parent="top").model_validate(
            {
                "name": "q",
                "parent": "top",
                "gpu_models": {"T4": quota, "H100-80GB": quota | {"guarantee": 2.5}},
            }
        ),
    ]

    assert found(world(queues=queues)) == [
        (
            ("queues", 0, "quota", "guarantee"),
            "top 4.001 4",
        ),
        (
            ("queues", 1, "gpu_models", "T4", "guarantee"),
            ("q 3 T4 2.5"),
        ),
    ]


def test_a_guarantee_may_count_on_what_a_queue_borrows_and_on_those_below():
    queues = [
        queue("top", nominal=1, guarantee=5),
        queue("q", parent="top", nominal=4, guarantee=9),
        queue("r", parent="top", nominal=0, borrowing=2, guarantee=2),
    ]

    assert found(world(queues=queues)) == []


@pytest.mark.parametrize(
    "queues",
    [
        [queue("q", parent="p", nominal=1, guarantee=2)],
        [queue("q", parent="r", nominal=1, guarantee=2), queue("r", parent="q")],
        [queue("q", nominal=1, guarantee=2), queue("q", nominal=1, guarantee=2)],
    ],
)
def test_guarantees_are_not_judged_while_the_queues_are_no_tree(queues):
    assert not any("guarantee" in location for location, _ in found(world(queues=queues)))
