"""Nodes held for the job that has waited too long: which, from when on, and which jobs may start there."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from gpuplan.models.calendar import Reservation
from gpuplan.models.job import Progress
from gpuplan.models.placement import Running
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import Objective
from gpuplan.models.timing.durations import Durations
from gpuplan.models.timing.reservation_windows import ReservationWindows
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.epoch import plan_epoch
from tests.support.builders import build
from tests.support.builders.build import NOW

HOUR = 3600
DAY = timedelta(days=1)
GREEDY = Policy(solvers=())


def runs(name, node, gpus, hours, **more):
    """A job that goes on for so many hours."""
    began = Running(started_at=NOW, replicas=(build.replica(node, gpus=gpus),))
    return build.job(name, gpus=len(gpus), expected_duration=round(hours * HOUR), running=began, **more)


def waits(name, gpus, hours, *, days=0.0, **more):
    return build.job(name, gpus=gpus, expected_duration=round(hours * HOUR), waited=days * DAY, **more)


def gang(days=8.0, **more):
    """Two replicas of eight GPUs, which is all of the two nodes."""
    return waits("gang", 8, 5, days=days, replicas=2, **more)


BUSY = (runs("a", "n0", range(4), 2), runs("b", "n1", range(1), 3))


def hold(*jobs, policy=GREEDY, **about):
    snapshot = build.snapshot(jobs=jobs, **about)
    return ReservationWindows(snapshot, policy, Durations(snapshot, policy)).node_hold


def started(*jobs, policy=GREEDY, **about):
    """Names of the jobs that start now."""
    snapshot = build.snapshot(jobs=jobs, **about)
    plan = plan_epoch(snapshot, policy, seed=0, created_at=NOW)
    return {each.job for each in plan.placements} - {job.name for job in jobs if job.running}


@pytest.mark.parametrize("policy", [GREEDY, Policy()], ids=["greedy", "exact"])
def test_beside_a_job_that_starves_only_those_start_that_are_gone_when_it_has_room(policy):
    """Both nodes are free after three hours: until then they are for jobs of three hours or less."""
    jobs = (*BUSY, waits("short", 1, 3), waits("long", 1, 4))

    assert started(*jobs, gang(), policy=policy) == {"short"}
    # The best schedule of the queue would spare the nodes for a gang of this age too.
    at_once = policy.model_copy(update={"objective": Objective(rollouts=0)})
    assert started(*jobs, gang(days=6), policy=at_once) == {"short", "long"}


def test_what_is_held_are_the_nodes_that_have_room_first():
    found = hold(*BUSY, waits("wide", 8, 5, days=8))

    assert (found.job.name, found.nodes, found.begins, found.ends) == ("wide", {"n0"}, 2 * HOUR, 7 * HOUR)


def test_time_with_places_is_no_waiting():
    """A job of nine days ago had eight GPUs for two days, or an hour more, and was stopped for another."""
    again, more = (
        waits("again", 8, 5, days=9, progress=Progress(completed="0s", served=served))
        for served in ("384h", "392h")
    )

    assert hold(*BUSY, again).job.name == "again"
    assert hold(*BUSY, again, gang(days=8)).job.name == "gang"
    assert hold(*BUSY, more) is None


def test_nothing_is_held_but_by_the_policy_and_in_plans_of_one_slot():
    assert hold(*BUSY, gang()).nodes == {"n0", "n1"}
    assert hold(*BUSY, gang(), policy=Policy(horizon={"backfill": {"starving": None}})) is None
    assert hold(*BUSY, gang(), policy=Policy(horizon={"backfill": {"starving": "9d"}})) is None
    assert hold(*BUSY, gang(), policy=Policy(horizon={"slots": 2})) is None


def test_one_job_holds_nodes_at_a_time_the_most_important_and_then_the_first():
    jobs = [waits("a", 8, 5, days=9), waits("b", 8, 5, days=10), waits("c", 8, 5, days=8, priority=1)]

    assert hold(*BUSY, *jobs).job.name == "c"
    assert hold(*BUSY, *jobs[:2]).job.name == "b"


def test_higher_priorities_start_on_nodes_that_are_held_and_equal_ones_do_not():
    jobs = (*BUSY, waits("better", 1, 9, priority=1), waits("equal", 1, 9))

    assert started(*jobs, gang()) == {"better"}


def test_no_running_job_has_to_leave():
    """Four of eight GPUs are held from two hours on, beside a job of ten days."""
    others = [runs("long", "n0", range(4, 8), 240), runs("c", "n1", range(8), 300)]
    snapshot = build.snapshot(jobs=[runs("a", "n0", range(4), 2), *others, waits("four", 4, 5, days=8)])
    windows = ReservationWindows(snapshot, GREEDY, Durations(snapshot, GREEDY))

    assert windows.node_hold.nodes == {"n0"}
    assert [windows.forced_leave_window(job) for job in snapshot.jobs if job.running] == [None, None, None]


@pytest.mark.parametrize(
    "more",
    [
        {"held": True},
        {"weight": 0},
        {"not_before": NOW + DAY},
        {"co_start": "group"},
        {"gpu_models": ["A100-40GB"]},
        {"node_selector": {"disk": "nvme"}},
        {"queue": "full"},
    ],
    ids=lambda more: next(iter(more)),
)
def test_nothing_is_held_for_a_job_that_more_room_would_not_help(more):
    queues = [build.queue("q"), build.queue("full", nominal=8)]

    assert hold(*BUSY, gang(**more), queues=queues) is None


def test_a_job_that_has_room_starts_before_jobs_that_are_worth_more():
    minutes = [waits(f"m{index}", 4, 0.1) for index in range(4)]

    assert started(*minutes, gang()) == {"gang"}
    assert started(*minutes, gang(days=0)) == {each.name for each in minutes}


def test_the_verifier_lets_no_job_start_that_would_be_in_the_way():
    snapshot = build.snapshot(jobs=[*BUSY, gang(), waits("long", 1, 4)])
    target = DesiredState(
        (*snapshot.running_placements, build.placement("long", build.replica("n1", gpus=(5,))))
    )

    (broken,) = verify(snapshot, GREEDY, target.placements).violations

    assert broken.rule == "windows"
    assert "only job gang, which starves" in broken.allowed


def test_a_job_that_is_kept_from_held_nodes_names_the_job_they_are_held_for():
    snapshot = build.snapshot(jobs=[*BUSY, gang(), waits("long", 1, 4)])
    plan = plan_epoch(snapshot, GREEDY, seed=0, created_at=NOW)

    (reason,) = [each.reason.text for each in plan.waiting if each.job == "long"]

    assert reason == (
        "every matching node is closed by hold for gang on n0 and n1 from 15:00 to 20:00 "
        "(horizon.backfill.starving); takes 4h"
    )


def test_a_reservation_of_the_same_name_is_another_window():
    named = Reservation(name="gang", kind="maintenance", nodes=("n1",), start=NOW, duration=HOUR)
    jobs = (*BUSY, waits("gang", 8, 5, days=8), waits("short", 1, 2), waits("long", 1, 4))

    assert started(*jobs, reservations=(named,)) == {"short"}


def test_of_several_that_starve_and_have_room_the_first_has_a_node_to_itself_and_the_others_the_rest():
    jobs = [waits(f"j{number}", 1, 10, days=9 - number / 10) for number in range(16)]

    held = hold(*jobs, nodes=build.cluster(3))

    assert (held.job.name, held.begins, len(held.nodes)) == ("j0", 0, 1)
    assert started(*jobs, nodes=build.cluster(3)) == {job.name for job in jobs}


def test_a_job_that_never_has_room_keeps_nothing_from_the_next():
    impossible = waits("impossible", 8, 5, days=20, replicas=3)

    assert hold(*BUSY, impossible, gang()).job.name == "gang"


def test_jobs_that_fit_beside_a_starving_job_have_places_there_the_first_ones_first():
    """On one node, eight jobs of one GPU that starve start together; before, one did in each plan."""
    ones = [waits(f"j{number}", 1, 10, days=9 - number / 10) for number in range(8)]
    young = [waits(f"y{number}", 1, 1, days=1) for number in range(8)]
    node = [build.node("n0")]

    assert hold(*ones, nodes=node).beside == {"n0": {f"j{number}" for number in range(1, 8)}}
    assert started(*ones, *young, nodes=node) == {job.name for job in ones}
    # Of the rest of a node nothing is idle: jobs that do not starve have it, in order of submission.
    assert started(*ones[:2], *young[:3], nodes=node) == {"j0", "j1", "y0", "y1", "y2"}


def test_places_beside_a_starving_job_are_those_that_it_leaves_when_it_has_room():
    """Two GPUs are free now and four more in two hours: four are held, and two are left."""
    busy = [runs("a", "n0", range(4), 2), runs("b", "n0", (4, 5), 99)]
    four, long = waits("four", 4, 5, days=8), [waits(f"l{number}", 1, 9) for number in range(3)]
    node = [build.node("n0")]

    found = hold(*busy, four, *long, waits("wide", 3, 9, days=2), nodes=node)

    assert (found.begins, found.beside) == (2 * HOUR, {"n0": {"l0", "l1"}})
    assert started(*busy, four, *long, nodes=node) == {"l0", "l1"}
    assert started(*busy, four, *long, waits("short", 2, 1), nodes=node) == {"short"}


def test_a_job_has_its_place_beside_a_starving_job_on_one_node_only():
    """A gang on two nodes leaves three GPUs of each: what fits on one of them may not go to the other."""
    gang = waits("gang", 5, 5, days=9, replicas=2)
    threes = [waits(f"f{number}", 3, 9, days=2 - number) for number in range(2)]
    snapshot = build.snapshot(
        jobs=[runs("a", "n0", range(4), 1), runs("b", "n1", range(4), 1), gang, *threes]
    )
    windows = ReservationWindows(snapshot, GREEDY, Durations(snapshot, GREEDY))

    assert windows.node_hold.beside == {"n0": {"f0"}, "n1": {"f1"}}
    assert windows.blocking_window(threes[0], "n0", 0, 9 * HOUR) is None
    assert windows.blocking_window(threes[0], "n1", 0, 9 * HOUR).beside == ("f1",)


@pytest.mark.parametrize("seed", range(40))
def test_with_all_jobs_beside_it_there_is_room_for_the_starving_job(seed):
    """By GPUs and cores of each held node, counted apart from the code."""
    draw = random.Random(f"beside {seed}")
    nodes = [build.node(f"n{number}", cpus=40) for number in range(draw.choice((1, 2, 3)))]
    busy = []
    for node in nodes:
        at = 0
        while (size := draw.choice((1, 2, 4))) + at <= draw.choice((4, 8)):
            busy.append(runs(f"r{len(busy)}", node.name, range(at, at + size), draw.choice((1, 2, 9))))
            at += size
    replicas = draw.choice((1, 1, 2))
    star = waits("star", draw.choice((1, 2, 5)), 5, days=9, replicas=replicas, cpus=draw.choice((0, 9)))
    others = [
        waits(f"w{number}", draw.choice((1, 2, 3)), 9, days=draw.random() * 8, cpus=draw.choice((0, 1, 20)))
        for number in range(8)
    ]
    jobs = {job.name: job for job in (*busy, star, *others)}

    found = hold(*jobs.values(), nodes=nodes)

    if found is None:
        return
    fits, size = 0, found.job.request
    for name in found.nodes:
        there = [
            job
            for job in busy
            if job.running.replicas[0].node == name and job.expected_duration > found.begins
        ] + [jobs[each] for each in found.beside.get(name, ())]
        gpus = 8 - sum(job.request.gpus for job in there)
        cores = 40_000 - sum(job.request.cpu_milli for job in there if not job.running)
        assert gpus >= 0 <= cores
        fits += min(gpus // size.gpus, cores // size.cpu_milli if size.cpu_milli else 8)
    assert fits >= found.job.gang.minimum
