"""What is free more in later slots since a job leaves, also for gangs that need one rack."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import HorizonPolicy
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.seeds import examples

pytestmark = pytest.mark.slow

SLOTS, RACKS, NODES, GPUS = 4, 2, 3, 4
POLICY = Policy(horizon=HorizonPolicy(slots=SLOTS))

HELD = (0,), (1,), (2, 3)
"""GPUs of the three jobs that a node has room for."""

HOURS = st.tuples(*[st.integers(0, SLOTS) for _ in HELD])
"""That each of them still runs; 0 is none."""


@st.composite
def racks(draw):
    """Hours by node, the replicas and GPUs of a gang that needs one rack, and the jobs that are stopped."""
    hours = draw(st.lists(HOURS, min_size=RACKS * NODES, max_size=RACKS * NODES))
    gang = draw(st.integers(1, NODES)) + 1, draw(st.sampled_from((1, 2, GPUS)))
    names = [name for name, _, _, _ in running(hours)]
    return hours, gang, draw(st.sets(st.sampled_from(names))) if names else set()


def running(hours):
    """(name, node, GPUs, hours left) of all that run."""
    return [
        (f"r{node}-{number}", f"n{node}", gpus, left)
        for node, every in enumerate(hours)
        for number, (gpus, left) in enumerate(zip(HELD, every, strict=True))
        if left
    ]


def snapshot_of(hours, gang):
    nodes = [build.node(f"n{node}", gpus=GPUS, rack=f"rack{node % RACKS}") for node in range(len(hours))]
    jobs = [
        build.job(name, gpus=2, at=[build.replica(node, gpus=gpus)], expected_duration=f"{left + 1}h")
        for name, node, gpus, left in running(hours)
    ]
    replicas, size = gang
    rack = {"required": "rack"}
    gangs = [
        build.job(
            f"g{number}", gpus=size, replicas=replicas, locality=rack, expected_duration="2h", priority=1
        )
        for number in range(20)
    ]
    return build.snapshot(nodes=nodes, jobs=[*jobs, *gangs])


def gangs_that_fit(hours, gang, stopped, slot):
    """How many gangs there is room for in a slot, counted rack by rack."""
    replicas, size = gang
    free = [GPUS] * len(hours)
    for name, node, gpus, left in running(hours):
        if left > slot and name not in stopped:
            free[int(node[1:])] -= len(gpus)
    return sum(
        sum(free[node] // size for node in range(rack, len(hours), RACKS)) // replicas
        for rack in range(RACKS)
    )


def question(hours, gang, stopped):
    """Columns, rows by name and slot, and the values of all columns where some are stopped."""
    snapshot = snapshot_of(hours, gang)
    problem = build_problem(snapshot, POLICY)
    x = Columns(problem)
    rows = {row.key: row for row in formulate(problem, x).rows if row.family == "horizon"}
    kept = tuple(each for each in snapshot.running_placements if each.job not in stopped)
    return x, rows, encode(x, DesiredState(kept))


def left_over(row, values):
    """What a row leaves to gangs, and what it takes one of them to be there."""
    takes = max(row.coefficients.tolist())
    return row.upper - row.value(values), takes


@given(racks())
@example(([(4, 4, 4)] * RACKS * NODES, (3, 1), {"r0-0", "r2-0", "r4-0"}))
@settings(max_examples=examples(60))
def test_no_gang_is_kept_out_of_a_rack_that_is_free_for_it(case):
    hours, gang, stopped = case
    _, rows, values = question(*case)

    for slot in range(1, SLOTS):
        row = rows.get((f"rack of {gang[0]} × {gang[1]}", "0", slot))
        if row is not None:
            left, takes = left_over(row, values)
            assert takes * gangs_that_fit(hours, gang, stopped, slot) <= left


@given(racks())
@settings(max_examples=examples(40))
def test_gains_are_what_is_free_more_in_each_slot(case):
    hours, gang, stopped = case
    _, rows, values = question(*case)

    for slot in range(1, SLOTS):
        row = rows.get(("blocks of 1", "0", slot))
        if row is not None:
            busy = sum(
                len(gpus) for name, _, gpus, left in running(hours) if left > slot and name not in stopped
            )
            left, takes = left_over(row, values)
            # All is divided by the greatest common divisor.
            assert left == (GPUS * len(hours) - busy) // (gang[0] * gang[1] // takes)


def test_clearing_one_node_of_a_rack_makes_no_room_for_a_gang_that_needs_all():
    hours, gang = [(4, 4, 4)] * (RACKS * NODES), (NODES, GPUS)
    all_jobs = {name for name, _, _, _ in running(hours)}
    of_one_node = {name for name in all_jobs if name.startswith("r0-")}
    of_its_rack = {name for name in all_jobs if int(name[1]) % RACKS == 0}

    (left, takes), (left_then, _) = (
        left_over(rows["rack of 3 × 4", "0", 1], values)
        for _, rows, values in (question(hours, gang, stopped) for stopped in (of_one_node, of_its_rack))
    )

    assert left < takes <= left_then
