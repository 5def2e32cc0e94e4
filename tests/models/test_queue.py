"""QueueLimits: Kueue's documented examples, its hierarchical arithmetic, its algorithm beside ours."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.queue import ALL_MODELS, queue_limits
from tests.support.builders.build import queue
from tests.support.seeds import examples


def fits(limits, **own):
    """True if jobs holding so many GPUs directly in each queue break no limit."""
    used = limits.usage({name: gpus * 1000 for name, gpus in own.items()})
    return all(limit is None or used[name] <= limit for name, limit in limits.limit.items())


def two_teams(a=None, b=None):
    """A cohort of two teams with 9 and 12 GPUs."""
    teams = [
        queue("a", parent="cohort", nominal=9, **(a or {})),
        queue("b", parent="cohort", nominal=12, **(b or {})),
    ]
    return queue_limits((queue("cohort"), *teams), ALL_MODELS)


def test_a_team_borrows_all_that_its_cohort_does_not_use():
    limits = two_teams()

    assert fits(limits, a=21)
    assert not fits(limits, a=22)
    assert fits(limits, a=9, b=12)
    assert not fits(limits, a=10, b=12)


def test_a_borrowing_limit_is_what_a_team_may_use_beyond_its_quota():
    limits = two_teams(a={"borrowing": 1})

    assert fits(limits, a=10)
    assert not fits(limits, a=11)
    assert fits(limits, b=21)


def test_a_borrowing_limit_of_zero_keeps_a_team_within_its_quota():
    limits = two_teams(a={"borrowing": 0})

    assert fits(limits, a=9)
    assert not fits(limits, a=10)


def test_a_lending_limit_is_what_others_may_borrow_of_a_quota():
    limits = two_teams(b={"lending": 1})

    assert fits(limits, a=10)
    assert not fits(limits, a=11)
    assert limits.kept == {"cohort": 0, "a": 0, "b": 11_000}


def test_a_kept_quota_is_used_before_anything_is_borrowed():
    limits = two_teams(b={"lending": 1})

    assert fits(limits, a=10, b=11)
    assert not fits(limits, a=10, b=12)
    assert fits(limits, a=9, b=12)


def test_a_lending_limit_beyond_the_quota_lends_the_quota():
    assert two_teams(b={"lending": 100}).limit["cohort"] == 21_000


def test_the_quota_of_a_parent_is_added_to_that_of_its_children():
    limits = queue_limits((queue("org", nominal=4), queue("a", parent="org", nominal=2)), ALL_MODELS)

    assert limits.limit["org"] == 6_000
    assert fits(limits, a=6)
    assert not fits(limits, a=6, org=1)


def test_limits_hold_at_every_level_of_the_tree():
    """Below `dept` are 3 + 5 GPUs; it lends 2 of them and borrows 1, whatever `root` has."""
    limits = queue_limits(
        (
            queue("root", nominal=100),
            queue("dept", parent="root", nominal=0, borrowing=1, lending=2),
            queue("a", parent="dept", nominal=3),
            queue("b", parent="dept", nominal=5),
            queue("other", parent="root", nominal=0),
        ),
        ALL_MODELS,
    )

    assert limits.limit == {"root": 102_000, "dept": 9_000, "a": None, "b": None, "other": None}
    assert fits(limits, a=9)
    assert not fits(limits, a=9, b=1)
    assert fits(limits, other=102)
    assert fits(limits, other=99, a=9)
    assert not fits(limits, other=100, a=9)


def test_a_root_borrows_from_no_queue():
    limits = queue_limits((queue("q", nominal=4, borrowing=10),), ALL_MODELS)

    assert limits.limit == {"q": 4_000}


def test_a_queue_without_a_quota_is_unlimited():
    assert queue_limits((queue("q"),), ALL_MODELS).limit == {"q": None}


def test_an_unlimited_child_makes_its_parent_unlimited_unless_that_has_a_quota():
    child = queue("free", parent="org")

    assert queue_limits((queue("org"), child), ALL_MODELS).limit["org"] is None
    limited = queue_limits((queue("org", nominal=4), child), ALL_MODELS)
    assert limited.limit == {"org": 4_000, "free": None}
    assert not fits(limited, free=5)


def test_each_gpu_model_has_its_own_tree_of_limits():
    queues = (queue("org", nominal=8, **{"H100-80GB": 2}), queue("a", parent="org", nominal=0))

    assert queue_limits(queues, ALL_MODELS).limit == {"org": 8_000, "a": None}
    assert queue_limits(queues, "H100-80GB").limit["org"] == 2_000
    assert queue_limits(queues, "T4").limit == {"org": None, "a": None}


def test_leaves_come_before_their_parents():
    limits = queue_limits(
        (queue("r"), queue("z", parent="r"), queue("a", parent="z"), queue("b")), ALL_MODELS
    )

    assert limits.leaves_first == ("a", "z", "b", "r")


def trees():
    """Small trees in which every queue has a quota, each parent before its children."""
    limit = st.none() | st.integers(0, 6)
    return st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 6), limit, limit), min_size=1, max_size=6
    ).map(
        lambda drawn: [
            queue(
                f"q{number}",
                parent=f"q{above % number}" if number and above < 8 else None,
                nominal=nominal,
                borrowing=borrowing,
                lending=lending,
            )
            for number, (above, nominal, borrowing, lending) in enumerate(drawn)
        ]
    )


class Cohort:
    """Kueue's own bookkeeping: quota of a subtree, what is available to a queue, usage that bubbles up."""

    def __init__(self, queues):
        self.queue = {one.name: one for one in queues}
        self.used = dict.fromkeys(self.queue, 0)

    def subtree(self, name):
        children = [one.name for one in self.queue.values() if one.parent == name]
        return self.queue[name].quota.nominal + sum(
            self.subtree(child) - self.kept(child) for child in children
        )

    def kept(self, name):
        lending = self.queue[name].quota.lending_limit
        return 0 if lending is None else max(0, self.subtree(name) - lending)

    def available(self, name):
        subtree, kept, used = self.subtree(name), self.kept(name), self.used[name]
        if self.queue[name].parent is None:
            return subtree - used
        above = self.available(self.queue[name].parent)
        if (borrowing := self.queue[name].quota.borrowing_limit) is not None:
            above = min(above, (subtree - kept) - max(0, used - kept) + borrowing)
        return max(0, kept - used) + above

    def add(self, name, amount):
        own = max(0, self.kept(name) - self.used[name])
        self.used[name] += amount
        if (parent := self.queue[name].parent) and amount > own:
            self.add(parent, amount - own)


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(trees(), st.data())
def test_limits_admit_exactly_what_kueues_algorithm_admits(queues, data):
    limits, cohort = queue_limits(tuple(queues), ALL_MODELS), Cohort(queues)
    own = dict.fromkeys(cohort.queue, 0)
    for name in data.draw(st.lists(st.sampled_from(sorted(own)), max_size=8)):
        amount = data.draw(st.integers(1, 8)) * 1000
        used = limits.usage(own | {name: own[name] + amount})
        within = all(limit is None or used[one] <= limit for one, limit in limits.limit.items())

        assert within == (amount <= cohort.available(name))

        if within:
            cohort.add(name, amount)
            own[name] += amount
            assert limits.usage(own) == cohort.used


@settings(max_examples=examples(50))
@given(trees(), st.randoms())
def test_limits_do_not_depend_on_the_order_of_the_queues(queues, random):
    shuffled = random.sample(queues, len(queues))

    one, other = queue_limits(tuple(queues), ALL_MODELS), queue_limits(tuple(shuffled), ALL_MODELS)

    assert (one.limit, one.kept, one.leaves_first) == (other.limit, other.kept, other.leaves_first)
