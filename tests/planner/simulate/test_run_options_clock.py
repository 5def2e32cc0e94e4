"""When epochs are: at regular times, or where something happens."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.planner.simulate.run_options import EpochClock
from gpuplan.planner.simulate.trace import Trace
from gpuplan.planner.sources.traces.arrivals import NodeEvent, Outage
from tests.support.builders.build import NOW, job, pool, snapshot
from tests.support.harness.baseline_runs import MINUTE, comes, epochs, trace

HOUR = 60 * MINUTE


def minutes(given, clock):
    return [(each.before.now - NOW) / timedelta(minutes=1) for each in epochs("fifo", given, clock)]


def queue():
    """a runs from 0 to 7, b from 7 to 12."""
    return trace(comes("a", 0, 7), comes("b", 3, 5))


def test_at_events_epochs_are_where_jobs_come_and_end():
    assert minutes(queue(), EpochClock(HOUR, at_events=True)) == [0, 3, 7, 12]
    assert minutes(queue(), EpochClock(5 * MINUTE)) == [0, 5, 10, 15]


def test_what_happens_in_one_second_is_one_event():
    given = trace(comes("a", 0, 7), *(comes(name, 7, 2, gpus=4) for name in "bc"))

    assert minutes(given, EpochClock(HOUR, at_events=True)) == [0, 7, 9]


def test_epochs_at_events_are_as_far_apart_as_asked_for():
    # The event at 3 is heard at 5, what happens at 7 at 10, and the end of b, which starts then, at 15.
    assert minutes(queue(), EpochClock(HOUR, at_events=True, apart=5 * MINUTE)) == [0, 5, 10, 15]


def test_without_events_the_next_epoch_comes_all_the_same():
    assert minutes(trace(comes("a", 0, 25)), EpochClock(10 * MINUTE, at_events=True)) == [0, 10, 20, 25]


def test_nodes_that_fail_and_return_are_events():
    outages = (Outage(2 * MINUTE, "n0", NodeEvent.FAILS), Outage(6 * MINUTE, "n0", NodeEvent.RETURNS))
    given = trace(comes("a", 4, 10), outages=outages)

    assert minutes(given, EpochClock(HOUR, at_events=True)) == [0, 2, 4, 6, 16]


@pytest.mark.slow
def test_a_node_that_comes_up_is_an_event():
    clock = EpochClock(HOUR, at_events=True)
    start = snapshot(nodes=(), jobs=[job("a", gpus=8)], pools=(pool(),))
    (first, *_) = epochs("fifo", Trace(start), clock)
    booting = first.after.cluster.model_copy(
        update={"nodes": (pool().template.model_copy(update={"ready_at": NOW + timedelta(minutes=4)}),)}
    )
    world = type(first.after)(
        **{name: getattr(first.after, name) for name in first.after.__slots__} | {"cluster": booting}
    )

    assert clock.next_epoch(world) == NOW + timedelta(minutes=4)


@pytest.mark.parametrize("at_events", [False, True])
def test_the_next_epoch_is_always_later(at_events):
    given = trace(comes("a", 0, 0), comes("b", 0, 1))
    clock = EpochClock(HOUR, at_events=at_events)

    assert all(clock.next_epoch(each.after) > each.after.now for each in epochs("fifo", given, clock))
