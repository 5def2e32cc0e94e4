"""Consistency of all that is about time: reservations, dependencies, deadlines, promises, finished jobs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.dependency import FinishedJob
from gpuplan.models.placement import Running
from gpuplan.models.validation.base import RESERVATIONS, TARIFFS
from gpuplan.models.validation.checks import Section, inconsistencies
from tests.support.builders.build import NOW, job, node, pool, queue, replica
from tests.support.builders.invalid_snapshots import found, told, world
from tests.support.output.golden import figures
from tests.support.seeds import examples

HOUR = timedelta(hours=1)


def reservation(name="course", **more):
    given = {"start": NOW, "duration": 3600, "queues": ["q"]} | more
    return {"name": name} | {key: value for key, value in given.items() if value is not None}


def after(name, *names, **more):
    """A job that depends on others."""
    return job(name, depends_on=[{"job": each} for each in names], **more)


def over(name="over", *, begun=3 * HOUR, ended=2 * HOUR):
    return FinishedJob(name=name, queue="q", started_at=NOW - begun, ended_at=NOW - ended)


def runs(name="runs", *, kill=None, **more):
    made = job(name, gpus=1, at=[replica("n0", gpus=[0])], **more)
    if kill is None:
        return made
    return made.model_copy(update={"running": made.running.model_copy(update={"kill_at": kill})})


PROMISE = {"start": NOW + HOUR, "replicas": [replica("gone", gpus=[0])]}


def test_what_makes_sense_is_no_contradiction():
    whole = world(
        jobs=[
            runs(kill=NOW + HOUR),
            after("first", "runs", "over", "again", depends_on_at_least=3),
            after("second", "first", deadline=NOW + HOUR, hard_deadline=True, co_start="pair"),
            after("third", "first", co_start="pair"),
            job("again", gpus=1, promise=PROMISE),
            job("alone", co_start="lonely", held=True, promise=PROMISE),
        ],
        finished=[over(), over("again"), over("again", ended=HOUR)],
        reservations=[reservation(nodes=["n0", "n1"]), reservation("other", count=2, gpu_model="H100-80GB")],
        tariffs=[
            {"name": "t", "cron": "* * * * *", "duration": 60, "price_per_gpu_hour": 1, "gpu_models": ["X"]}
        ],
    )

    assert found(whole) == []


@pytest.mark.parametrize(
    ("about", "location"),
    [
        ({"reservations": [reservation("x", count=1)] * 2}, RESERVATIONS),
        ({"tariffs": [{"name": "x", "start": NOW, "duration": 60, "price_per_gpu_hour": 1}] * 2}, TARIFFS),
    ],
)
def test_reservations_and_tariffs_bear_names_of_their_own(about, location):
    (one,) = inconsistencies(world(**about))

    assert (one.location, one.contradicts) == ((*location, 1, "name"), (*location, 0, "name"))
    assert figures(one.message) == "x"


def test_a_reserved_node_that_is_not_there_is_told_with_the_one_meant():
    assert found(world(nodes=[node("gpu-07")], reservations=[reservation(nodes=["gpu-07", "gpu-7"])])) == [
        (
            (*RESERVATIONS, 0, "nodes", 1),
            ("course gpu-7 gpu-07"),
        )
    ]


def test_a_reserved_node_may_be_one_that_a_pool_had():
    pools = [pool("cloud")]

    assert found(world(pools=pools, reservations=[reservation(nodes=["cloud-3"])])) == []
    assert len(found(world(pools=pools, reservations=[reservation(nodes=["cloud"])]))) == 1


@pytest.mark.parametrize(
    ("wanted", "most"),
    [
        ({"count": 3}, 2),
        ({"count": 2, "gpu_model": "A100-80GB"}, 1),
        ({"count": 1, "node_selector": {"tier": "iron"}}, 0),
    ],
)
def test_no_more_nodes_are_reserved_than_match(wanted, most):
    nodes = [node("a", labels={"tier": "gold"}), node("b", model="A100-80GB")]

    assert found(world(nodes=nodes, reservations=[reservation(**wanted)])) == [
        (
            (*RESERVATIONS, 0, "count"),
            f"course {wanted['count']} {most}",
        )
    ]


def test_nodes_that_a_pool_may_add_can_be_reserved():
    nodes, pools = [node("spot-1", pool="spot")], [pool("spot", most=3)]

    assert found(world(nodes=nodes, pools=pools, reservations=[reservation(count=3)])) == []
    assert len(found(world(nodes=nodes, pools=pools, reservations=[reservation(count=4)]))) == 1


def test_an_owner_that_is_no_queue_is_told_with_the_one_meant():
    queues = [queue(), queue("research")]

    assert found(world(queues=queues, reservations=[reservation(count=1, queues=["q", "reserch"])])) == [
        (
            (*RESERVATIONS, 0, "queues", 1),
            ("course reserch research"),
        )
    ]


def test_a_dependency_on_an_unknown_job_is_told_with_the_one_meant():
    assert found(world(jobs=[after("a", "train-l"), job("train-1")], finished=[over()])) == [
        (
            ("jobs", 0, "depends_on", 0, "job"),
            ("a train-l train-1 train-1"),
        )
    ]


@pytest.mark.parametrize("section", [Section.JOBS, Section.FINISHED])
def test_where_jobs_are_missing_none_is_called_unknown(section):
    assert found(world(jobs=[after("a", "b")]), incomplete=frozenset({section})) == []


def test_a_job_waits_for_no_more_jobs_than_it_names():
    assert found(world(jobs=[after("a", "b", depends_on_at_least=2), job("b")])) == [
        (
            ("jobs", 0, "depends_on_at_least"),
            "a 2 1",
        )
    ]


@pytest.mark.parametrize(
    ("jobs", "location", "path"),
    [
        ([after("a", "a")], 0, "'a' waits for itself: a -> a"),
        (
            [job("x"), after("c", "a"), after("b", "x", "c"), after("a", "b"), after("d", "c")],
            3,
            "'a' waits for itself: a -> b -> c -> a",
        ),
        (
            [after("a", "b", co_start="g"), job("b", co_start="g")],
            0,
            "'a' waits for itself: a -> b (starts with a)",
        ),
        (
            [job("a", co_start="g"), after("b", "c", co_start="g"), after("c", "a")],
            1,
            "'b' waits for itself: b -> c -> a (starts with b)",
        ),
        ([after("a", "b", "c", depends_on_at_least=2), job("b"), after("c", "a")], 0, "itself: a -> c -> a"),
    ],
)
def test_a_circle_of_jobs_is_told_at_its_first(jobs, location, path):
    ((where, message),) = told(world(jobs=jobs))

    assert where == ("jobs", location, "depends_on")
    assert message.partition(";")[0].removeprefix("job ").endswith(path)


@pytest.mark.parametrize(
    "jobs",
    [
        # A job that runs has got past what it depended on.
        [after("a", "runs"), runs(depends_on=[{"job": "a"}])],
        [after("a", "runs", co_start="g"), runs(co_start="g")],
        # Other jobs suffice.
        [after("a", "b", "c", depends_on_at_least=1), job("b"), after("c", "a")],
    ],
)
def test_a_circle_that_hinders_no_job_is_no_contradiction(jobs):
    assert found(world(jobs=jobs)) == []


def test_each_circle_is_told_once_and_a_long_one_is_cut():
    long = [after(f"j{number:02}", f"j{(number + 1) % 30:02}") for number in range(30)]

    messages = [message for _, message in told(world(jobs=[*long, after("x", "y"), after("y", "x", "j03")]))]

    assert len(messages) == 2
    assert figures(messages[0]).startswith("j00 j00 j01 j02 ")
    assert figures(messages[0]).endswith(" j09 j00")
    assert "x -> y -> x" in messages[1]


def _can_all_start(jobs):
    """Start each job that can, until none is left or none can."""
    left = {each.name: each for each in jobs if each.running is None}
    while left:
        ready = {
            name
            for name, each in left.items()
            if sum(dependency.job not in left for dependency in each.depends_on)
            >= min(each.depends_on_at_least or len(each.depends_on), len(each.depends_on))
        }
        free = {
            name
            for name in ready
            if left[name].co_start is None
            or all(other.name in ready for other in left.values() if other.co_start == left[name].co_start)
        }
        if not free:
            return False
        left = {name: each for name, each in left.items() if name not in free}
    return True


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.data())
def test_jobs_are_refused_just_where_no_order_of_starts_begins_all_of_them(data):
    names = "abcdef"[: data.draw(st.integers(1, 6))]
    jobs = []
    for name in names:
        ahead = data.draw(st.lists(st.sampled_from(names), max_size=3, unique=True))
        least = data.draw(st.none() | st.integers(1, len(ahead))) if ahead else None
        group = data.draw(st.sampled_from([None, None, "g", "h"]))
        given_ = {"depends_on_at_least": least, "co_start": group}
        made = after(name, *ahead, **given_)
        if data.draw(st.integers(0, 5)) == 0:
            made = made.model_copy(update={"running": Running(started_at=NOW, replicas=(replica("n0"),))})
        jobs.append(made)

    messages = [message for _, message in told(world(jobs=jobs))]

    assert (messages == []) == _can_all_start(jobs)
    assert all("waits for itself" in message for message in messages)


def test_a_hard_deadline_needs_a_deadline():
    assert found(world(jobs=[job("a", hard_deadline=True)])) == [
        (
            ("jobs", 0, "hard_deadline"),
            "a",
        )
    ]


def test_a_job_that_runs_is_promised_nothing():
    assert found(world(jobs=[runs(promise=PROMISE)])) == [
        (
            ("jobs", 0, "promise"),
            ("runs"),
        )
    ]


@pytest.mark.parametrize(("later", "wrong"), [(timedelta(0), True), (timedelta(seconds=1), False)])
def test_a_job_is_killed_after_its_start(later, wrong):
    expected = (
        ("jobs", 0, "running", "kill_at"),
        "runs 2026-11-20T11:00:00Z 2026-11-20T11:00:00Z",
    )
    assert found(world(jobs=[runs(kill=NOW - HOUR + later)])) == [expected] * wrong


def test_a_finished_job_ended_between_its_start_and_the_snapshot():
    finished = [over("early", begun=HOUR), over("late", ended=-HOUR), over("just", begun=HOUR, ended=HOUR)]

    assert found(world(finished=finished)) == [
        (
            ("finished", 0, "ended_at"),
            ("early 2026-11-20T10:00:00Z 2026-11-20T11:00:00Z"),
        ),
        (
            ("finished", 1, "ended_at"),
            ("late 2026-11-20T13:00:00Z 2026-11-20T12:00:00Z"),
        ),
    ]
