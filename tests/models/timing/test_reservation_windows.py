"""Windows: which jobs they bar and expel, and which nodes are chosen for them."""

from __future__ import annotations

import pytest

from gpuplan.models.calendar import Reservation
from gpuplan.models.placement import Promise
from gpuplan.models.policy.policy import Policy
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.value.disruption_cost import lost_seconds
from tests.support.builders import build
from tests.support.builders.build import NOW
from tests.support.strategies import time_strategies
from tests.support.strategies.time_strategies import HOUR, hours, runs, waits


def windows(*reservations, jobs=(), slots=4, **about):
    snapshot = build.snapshot(jobs=jobs, reservations=reservations, **about)
    policy = Policy(horizon={"slots": slots, "length": HOUR})
    return ReservationWindows(snapshot, policy, Durations(snapshot, policy))


def reservation(name="m", *, start=1, lasts=1, owned=False, **more):
    where = {} if "count" in more else {"nodes": ("n0",)}
    kind = "reserved" if owned or "queues" in more or "users" in more else "maintenance"
    return Reservation(name=name, kind=kind, start=hours(start), duration=int(lasts * HOUR), **where | more)


@pytest.mark.parametrize(
    ("start", "seconds", "barred"),
    [
        (0, HOUR, False),
        (0, HOUR + 1, True),
        (1800, HOUR, True),
        (2 * HOUR - 1, 1, True),
        (2 * HOUR, HOUR, False),
        (0, 9 * HOUR, True),
    ],
)
def test_a_job_that_is_there_for_a_second_of_a_window_is_barred(start, seconds, barred):
    found = windows(reservation())

    assert (found.blocking_window(waits(), "n0", start, seconds) is not None) == barred
    assert found.blocking_window(waits(), "n1", start, seconds) is None


def test_the_first_window_in_the_way_is_told():
    found = windows(reservation("b", start=2), reservation("c"), reservation("a"), jobs=[waits()])

    assert found.blocking_window(waits(), "n0", 0, 9 * HOUR).reservation.name == "a"
    assert found.blocking_window(waits(), "n0", 2 * HOUR, HOUR).reservation.name == "b"
    assert [window.reservation.name for window in found.of("n0")] == ["a", "b", "c"]


def test_owners_are_users_and_queues_with_all_below():
    queues = [build.queue("top"), build.queue("mid", parent="top"), build.queue("q", parent="mid")]
    found = windows(queues=queues)
    eve = waits(user="eve")

    assert found.owns(eve, reservation(users=("eve",)))
    assert not found.owns(eve, reservation(users=("bob",)))
    assert all(found.owns(eve, reservation(queues=(name,))) for name in ("top", "mid", "q"))
    assert not found.owns(waits(queue="mid"), reservation(queues=("q",)))
    assert not found.owns(eve, reservation())


def test_owners_are_jobs_with_all_of_the_labels():
    course = reservation(owned=True, job_labels={"team": "blue", "week": "7"})
    found = windows(course)

    assert found.owns(waits(labels={"team": "blue", "week": "7", "x": "y"}), course)
    assert not found.owns(waits(labels={"team": "blue"}), course)
    assert not found.owns(waits(labels={"team": "red", "week": "7"}), course)


@pytest.mark.parametrize(
    ("start", "expelled"), [(-0.5, True), (0.9, True), (1, True), (1.01, False), (-1, False)]
)
def test_a_job_that_runs_into_a_window_leaves_in_the_slot_before_it(start, expelled):
    job = runs(left=3)

    assert (windows(reservation(start=start), jobs=[job]).forced_leave_window(job) is not None) == expelled


def test_a_job_that_is_gone_by_then_or_owns_the_window_stays():
    gone, owner = runs(left=0.5), runs(left=3, user="eve")

    assert windows(reservation(start=0.5), jobs=[gone]).forced_leave_window(gone) is None
    assert windows(reservation(start=0.5, users=("eve",)), jobs=[owner]).forced_leave_window(owner) is None
    assert windows(reservation(start=0.5), jobs=[waits()]).forced_leave_window(waits()) is None


def chosen(*jobs, **more):
    about = {"nodes": build.cluster(4), "jobs": jobs}
    (window,) = windows(reservation(count=2, start=2, **more), **about).all
    return sorted(window.nodes)


def test_nodes_are_chosen_among_those_that_are_free_by_then():
    promised = waits(promise=Promise(start=hours(2), replicas=(build.replica("n1", gpus=(0,)),)))
    before = waits("v", promise=Promise(start=hours(0), replicas=(build.replica("n1", gpus=(0,)),)))

    assert chosen() == ["n0", "n1"]
    assert chosen(runs(left=5)) == ["n1", "n2"]
    assert chosen(runs(left=2)) == ["n0", "n1"]
    assert chosen(runs(left=5, user="eve"), users=("eve",)) == ["n0", "n1"]
    assert chosen(runs(left=5, user="eve", node="n3"), users=("eve",)) == ["n0", "n3"]
    assert chosen(runs(left=2, user="eve", node="n3"), users=("eve",)) == ["n0", "n1"]
    assert chosen(runs(left=5), promised) == ["n2", "n3"]
    assert chosen(runs(left=5), before) == ["n1", "n2"]


def test_where_too_few_are_free_the_first_of_the_others_are_taken():
    jobs = [runs(f"r{number}", left=9, node=f"n{number}") for number in range(4)]

    assert chosen(*jobs) == ["n0", "n1"]


def test_chosen_nodes_are_of_the_kind_that_is_asked_for():
    nodes = [build.node("n0"), build.node("n1", model="T4"), build.node("n2", model="T4", labels={"a": "b"})]

    def of_kind(**more):
        (window,) = windows(reservation(count=2, users=("eve",), **more), nodes=nodes).all
        return sorted(window.nodes)

    assert of_kind(gpu_model="T4") == ["n1", "n2"]
    assert of_kind(node_selector={"a": "b"}) == ["n2"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_every_span_within_reach_of_a_job_is_a_window(seed):
    instance = time_strategies.instance(seed)
    snapshot, policy = instance.snapshot, instance.policy
    durations = Durations(snapshot, policy)
    found = ReservationWindows(snapshot, policy, durations)
    longest = 0
    for job in snapshot.jobs:
        models = [*job.gpu_models, None]
        whole = max(durations.seconds(job, model) for model in models)
        slowest = min(job.speed_milli(model) for model in models)
        moved = -(-durations.remaining(job) * 1000 // slowest) + lost_seconds(policy, job, NOW)
        longest = max(longest, whole, moved)
    for each in snapshot.cluster.reservations:
        spans = list(each.spans(snapshot.taken_at, found.slots.end + longest))
        seen = [(window.begins, window.ends) for window in found.all if window.reservation.name == each.name]
        assert seen[: len(spans)] == spans


def test_speeds_above_one_are_relative_to_the_fastest():
    job = waits(takes=10, gpu_models={"fast": 8, "slow": 1})

    assert windows(reservation(start=80), jobs=[job], slots=1).all
