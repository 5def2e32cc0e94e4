"""Plans with many actions as text: grouped, counted and cut, within the width of any terminal."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.plan.solution import Solution, SolveStatus
from gpuplan.planner.diff.diff import diff
from gpuplan.planner.plan_builder.draft import draft
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders.build import NOW, cluster, job, node, placement, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.output.golden import golden_section
from tests.support.output.plan_texts import crowd, text, text_of_diff
from tests.support.samples.sample_plans import NODES, small_plan, throng
from tests.support.seeds import examples
from tests.support.strategies import instances
from tests.support.strategies.placement_strategies import legal_placements
from tests.support.strategies.random_targets import legal_target
from tests.support.strategies.snapshot_strategies import snapshots

TEXTS = Path(__file__).with_name("texts.golden.txt")


def test_many_changes_of_running_jobs_and_nodes_are_grouped():
    lines = text(throng()).splitlines()

    first = next(index for index, line in enumerate(lines) if "> migrate" in line)
    assert lines[first : first + 10] == [
        "  > migrate  20 jobs  8 GPUs  20 nodes  queue q",
        "             160 GPUs in all; loses 160 GPU-hours; costs 17,800 points",
        "  - preempt  25 jobs  8 GPUs  25 nodes  queue q",
        "             200 GPUs in all; makes room for 25 jobs; loses 200 GPU-hours; costs",
        "             42,000 points: work -20,000, preemption -22,000",
        "  Grouped by size and queue; each one: gpuplan show plan.json --all",
        "",
        "  + scale_up     45 nodes  pool cloud              1,800.00/h in all",
        "  ± repartition  45 GPUs   no instances → 3g.40gb",
        "  Grouped by pool and layout; each one: gpuplan show plan.json --all",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [instances.everything, instances.everything_mixed])
def test_lines_of_any_plan_fit_any_usual_width(kind):
    for seed in range(30):
        world = kind(seed)
        goal = legal_target(
            world.snapshot, world.policy, build_problem(world.snapshot, world.policy), random.Random(seed)
        )
        answer = Solution(SolveStatus.FEASIBLE, "milp", goal, 0, None, 0, 0.5)
        plan = draft(world.snapshot, world.policy, answer, {"completion": 0}, seed=0, created_at=NOW)

        for view in (text(plan, width=60 + seed), text_of_diff(diff(plan), width=60 + seed)):
            assert max(map(len, view.splitlines())) <= 60 + seed
            assert not any(line != line.rstrip() for line in view.splitlines())
        assert text(plan, ascii_only=True).isascii()
        assert text_of_diff(diff(plan), ascii_only=True).isascii()


def test_grouped_resizes_say_what_is_given_up_and_what_is_left():
    jobs = [
        *(job(f"old-{i:02d}", gpus=1, replicas=(1, 4), at=on(i, 4)) for i in range(45)),
        *(job(f"new-{i:02d}", gpus=1, priority=5) for i in range(45)),
    ]
    placed = [
        *(placement(f"old-{i:02d}", *on(i, 3)) for i in range(45)),
        *(placement(f"new-{i:02d}", replica(f"n{i}", gpus=[3])) for i in range(45)),
    ]
    world = snapshot(nodes=[node(f"n{i}", gpus=4) for i in range(45)], jobs=jobs)

    found = text(small_plan(world, placed), width=200)

    assert "  ~ shrink  45 jobs  4 → 3 × 1 GPU  45 nodes  queue q  gives up 45 GPUs; 135 GPUs left; " in found
    assert (
        "makes room for 45 jobs; loses 180 GPU-hours; costs 24,750 points: work -4,500, resize -20,250"
        in found
    )


def on(index, count):
    return [replica(f"n{index}", gpus=[gpu]) for gpu in range(count)]


def test_many_actions_are_grouped_and_the_rest_is_counted():
    lines = text(crowd()).split("\n\n", 1)[1]

    assert lines == golden_section(TEXTS, "hundreds of starts and waits", lines)


@pytest.mark.slow
def test_every_job_is_shown_when_all_are_asked_for():
    plan = crowd()

    found = text(plan, verbose=True)

    assert all(re.search(rf"\b{job.name}\b", found) for job in plan.snapshot.jobs)
    assert "Grouped" not in found


@pytest.mark.slow
def test_a_plan_of_very_many_kinds_stays_on_a_few_screens():
    kinds = [(gpus, replicas) for gpus in range(1, 9) for replicas in range(1, 12)]
    waiting = [job(f"w{index}", gpus=gpus, replicas=100 + count) for index, (gpus, count) in enumerate(kinds)]
    starting = [job(f"s{index}", gpus=gpus, replicas=count) for index, (gpus, count) in enumerate(kinds)]
    started = [
        placement(
            f"s{index}", *(replica(f"n{index * 11 + number}", gpus=range(gpus)) for number in range(count))
        )
        for index, (gpus, count) in enumerate(kinds)
    ]
    world = snapshot(nodes=cluster(11 * len(kinds)), jobs=[*waiting, *starting])

    lines = text(small_plan(world, started)).splitlines()

    starts = [line for line in lines if line.startswith("  + start")]
    assert len(starts) == 38
    assert "  … 50 more kinds of start, 50 jobs" in lines
    assert len(lines) < 75


def test_long_names_are_cut_in_the_middle_and_only_where_they_must():
    long = "team-a/experiment-" + "x" * 200 + "-0007"
    world = snapshot(nodes=NODES, jobs=[job(long, gpus=8), job("b", gpus=8)])
    plan = small_plan(
        world,
        [
            placement(long, replica("h100-01", gpus=range(8))),
            placement("b", replica("h100-02", gpus=range(8))),
        ],
    )

    narrow, all_of_it = text(plan), text(plan, verbose=True)

    assert re.search(r"\+ start  team-a/exper\S*…\S*x-0007  8 GPUs  h100-01  queue q", narrow)
    assert max(map(len, narrow.splitlines())) == 80
    assert long in all_of_it


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.data())
def test_lines_fit_any_usual_width(data):
    world = data.draw(snapshots(mig=True, locality=True))
    plan = drafted(world, *data.draw(legal_placements(world))[len(world.running_placements) :])
    width = data.draw(st.integers(60, 132))

    for view in (text(plan, width=width), text_of_diff(diff(plan, world), width=width)):
        assert max(map(len, view.splitlines())) <= width
        assert not any(line != line.rstrip() for line in view.splitlines())
    assert text(plan, ascii_only=True).isascii()
    assert text_of_diff(diff(plan, world), ascii_only=True).isascii()
