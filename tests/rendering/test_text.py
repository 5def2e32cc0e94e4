from __future__ import annotations

import random
import re
from datetime import timedelta
from textwrap import dedent

import instances
import pytest
from answers import legal_placements
from build import NOW, cluster, job, node, placement, pool, queue, replica, snapshot
from drafts import drafted
from hypothesis import given, settings
from hypothesis import strategies as st
from judging import broken
from samples import NEW_NODE, NODES, WORLD, busy_plan, small_plan, throng
from strategies import snapshots
from targets import legal_target

from planner.diffing import diff
from planner.drafting import draft
from planner.models.cluster import Cluster
from planner.models.policy import BudgetMode, BudgetPolicy, Policy
from planner.models.solution import Ended, Fallback, Rejected, Solution, SolveStatus
from planner.models.violation import Rule
from planner.posing import pose
from planner.rendering.text import diff_text, plan_text

COLOURS = re.compile(r"\x1b\[\d+m")
HEAD = """\
Plan 7c1e55aa  epoch 2026-11-20T12:00:00Z  snapshot 9f3a9f3a  policy 1d201d20
"""


def text(plan, *, width=80, colour=False, ascii_only=False, verbose=False, path="plan.json"):
    return plan_text(plan, width=width, colour=colour, ascii_only=ascii_only, verbose=verbose, path=path)


def text_of_diff(found, *, width=80, colour=False, ascii_only=False, verbose=False, path="plan.json"):
    return diff_text(found, width=width, colour=colour, ascii_only=ascii_only, verbose=verbose, path=path)


def shown(golden):
    return dedent(golden).removeprefix("\n")


def test_a_plan_at_eighty_columns():
    assert text(small_plan()) == HEAD + shown("""
        milp FEASIBLE  objective 45,900  bound 46,330  gap 0.9 %  in 6.0 s
        terms  completion +45,900  (greedy 43,790)

          + start  train-llama  4 × 8 GPUs  h100-[03-06]  queue research
                   one rack (r2); waited 3h10m
          + start  infer-a      0.46 GPU    h100-02       queue batch
                   on H100-80GB; just submitted
          + start  prepare      16 CPUs     h100-02       queue batch     just submitted

          . wait  notebook    1 GPU       queue batch
                  held by its user or an operator
          . wait  train-moe   8 × 8 GPUs  queue research
                  needs 64 GPUs; queue research may never hold more than 48 GPUs
          . wait  train-next  3 × 8 GPUs  queue research
                  needs 24 GPUs; queue research uses 32 of 48 GPUs
          . wait  render      3 × 8 GPUs  queue batch
                  needs 24 GPUs; 19.54 GPUs free on 8 matching nodes

        allocated 18.8 % → 69.5 %  free GPUs in whole nodes 81.9 %  fairness 0.99
          cost 196.00/h
        Plan: 3 to start, 0 to preempt, 4 waiting, 2 unchanged.
        Next: gpuplan apply plan.json --executor simulated
        """)


def test_every_name_is_whole_and_every_reason_wrapped_in_ascii():
    found = text(small_plan(), ascii_only=True, verbose=True, path="my plan.json")

    assert found == HEAD + shown("""
        milp FEASIBLE  objective 45,900  bound 46,330  gap 0.9 %  in 6.0 s
        terms  completion +45,900  (greedy 43,790)

          + start  train-llama  4 x 8 GPUs  h100-[03-06]  queue research
                   one rack (r2); waited 3h10m
          + start  infer-a      0.46 GPU    h100-02       queue batch
                   on H100-80GB; just submitted
          + start  prepare      16 CPUs     h100-02       queue batch     just submitted

          . wait  notebook    1 GPU       queue batch
                  held by its user or an operator
          . wait  train-moe   8 x 8 GPUs  queue research
                  needs 64 GPUs; queue research may never hold more than 48 GPUs
          . wait  train-next  3 x 8 GPUs  queue research
                  needs 24 GPUs; queue research uses 32 of 48 GPUs
          . wait  render      3 x 8 GPUs  queue batch
                  needs 24 GPUs; 19.54 GPUs free on 8 matching nodes

        allocated 18.8 % -> 69.5 %  free GPUs in whole nodes 81.9 %  fairness 0.99
          cost 196.00/h
        Plan: 3 to start, 0 to preempt, 4 waiting, 2 unchanged.
        Next: gpuplan apply 'my plan.json' --executor simulated
        """)


def test_every_type_of_action_at_eighty_columns():
    assert text(busy_plan()) == HEAD + shown("""
        milp FEASIBLE  objective 12,300  bound 13,000  gap 5.7 %  in 6.0 s
        terms  completion +18,000  nodes -4,000  preemption -1,500  resize -200
          (greedy 9,000)

          + start  train-llama  2 × 8 GPUs   h100-[01,05]  queue research
                   waited 3h10m; takes the place of sweep-117
          + start  distill      6 GPUs       h100-02       queue research
                   just submitted; takes the place of sweep-118 and tune
          + start  render       6 GPUs       cloud-1       queue batch
                   on 1 new node; just submitted
          + start  infer-a      2 × 1g.10gb  mig-1         queue batch
                   just submitted

          ~ grow     embed      1 → 2 × 1 GPU   h100-03            queue batch
                     1 → 2 replicas of at most 3
          ~ shrink   tune       2 → 1 × 2 GPUs  h100-02            queue batch
                     2 → 1 replicas of at least 1; makes room for distill; costs 210
                     points
          > migrate  eval       1 GPU           old-1 → cloud-1    queue batch
                     empties old-1, to be removed; ran 1h, loses 1 GPU-hour without a
                     checkpoint; costs 120 points
          > migrate  notebook   1 GPU           h100-04 → mig-1    queue batch
                     leaves h100-04, to be drained; ran 1h, loses 1 GPU-hour without a
                     checkpoint; costs 120 points
          > migrate  sweep-118  4 GPUs          h100-02 → h100-03  queue batch
                     makes room for distill; ran 1h, loses 4 GPU-hours without a
                     checkpoint; costs 450 points
          - preempt  sweep-117  8 GPUs          h100-01            queue batch
                     makes room for train-llama; ran 1h, loses 8 GPU-hours without a
                     checkpoint; costs 1,680 points

          + scale_up     cloud-1      pool cloud, 8 × H100-80GB
                         needed by eval and render; costs 40.00/h, ready after 10m
          ± repartition  mig-1 gpu 0  2 × 3g.40gb → 3g.40gb + 2 × 1g.10gb  for infer-a
          ~ cordon       old-1
                         to be removed once eval has left
          ~ drain        h100-04
                         confirms that notebook has left
          ~ drain        old-1
                         confirms that eval has left
          - scale_down   old-1        pool old
                         nobody needs it; saves 20.00/h
          - scale_down   old-2        pool old
                         nobody needs it; saves 20.00/h

          . wait  train-moe  8 × 8 GPUs  queue research
                  needs 64 GPUs; queue research may never hold more than 48 GPUs

        allocated 33.5 % → 77.4 %  free GPUs in whole nodes 0.0 %  fairness 0.85
          cost 168.50/h
        Plan: 4 to start, 1 to grow, 1 to shrink, 3 to migrate (6 GPU-hours lost), 1 to
        preempt (8 GPU-hours lost), 1 to repartition, 1 node to add, 2 nodes to drain, 2
        nodes to remove, 2 waiting (1 of them stopped by this plan), 1 unchanged.
        Next: gpuplan apply plan.json --executor simulated
        """)


def test_every_type_of_action_in_ascii_on_one_line_each():
    lines = text(busy_plan(), ascii_only=True, verbose=True).splitlines()

    shown_here = [line for line in lines if re.match(r"  [-+~>*.] ", line)]
    assert [line.split()[:2] for line in shown_here] == [
        *[["+", "start"]] * 4,
        ["~", "grow"],
        ["~", "shrink"],
        *[[">", "migrate"]] * 3,
        ["-", "preempt"],
        ["+", "scale_up"],
        ["*", "repartition"],
        ["~", "cordon"],
        *[["~", "drain"]] * 2,
        *[["-", "scale_down"]] * 2,
        [".", "wait"],
    ]
    assert "  * repartition  mig-1 gpu 0  2 x 3g.40gb -> 3g.40gb + 2 x 1g.10gb  for infer-a" in lines


def test_what_is_stopped_or_removed_is_red_and_what_comes_is_green():
    lines = text(busy_plan(), colour=True).splitlines()

    colours = {
        match[2]: match[1] for line in lines if (match := re.match(r"  \x1b\[(\d+)m\S (\w+)\x1b", line))
    }
    assert colours == {
        "start": "32",
        "grow": "32",
        "scale_up": "32",
        "shrink": "33",
        "migrate": "33",
        "repartition": "33",
        "cordon": "33",
        "drain": "33",
        "wait": "33",
        "preempt": "31",
        "scale_down": "31",
    }
    assert COLOURS.sub("", "\n".join(lines)) + "\n" == text(busy_plan())


def test_the_cost_before_is_told_where_the_plan_changes_it():
    world = snapshot(
        nodes=[node(price_per_hour=10)], pools=[pool("cloud", template=NEW_NODE)], jobs=[job(gpus=8)]
    )

    plan = small_plan(world, [placement("a", replica("cloud-1", gpus=range(8)))], added=[NEW_NODE])

    assert "cost 10.00 → 50.00/h" in text(plan)


def test_many_changes_of_running_jobs_and_nodes_are_grouped():
    lines = text(throng()).splitlines()

    first = next(index for index, line in enumerate(lines) if "> migrate" in line)
    assert lines[first : first + 10] == [
        "  > migrate  20 jobs  8 GPUs  20 nodes  queue q",
        "             160 GPUs in all; loses 160 GPU-hours; costs 17,800 points",
        "  - preempt  25 jobs  8 GPUs  25 nodes  queue q",
        "             200 GPUs in all; makes room for 25 jobs; loses 200 GPU-hours; costs",
        "             42,000 points",
        "  Grouped by size and queue; each one: gpuplan show plan.json --all",
        "",
        "  + scale_up     45 nodes  pool cloud              1,800.00/h in all",
        "  ± repartition  45 GPUs   no instances → 3g.40gb",
        "  Grouped by pool and layout; each one: gpuplan show plan.json --all",
    ]


@pytest.mark.parametrize("kind", [instances.everything, instances.everything_mixed])
def test_lines_of_any_plan_fit_any_usual_width(kind):
    for seed in range(30):
        world = kind(seed)
        goal = legal_target(
            world.snapshot, world.policy, pose(world.snapshot, world.policy), random.Random(seed)
        )
        answer = Solution(SolveStatus.FEASIBLE, "milp", goal, 0, None, 0, 0.5)
        plan = draft(world.snapshot, world.policy, answer, {"completion": 0}, seed=0, created_at=NOW)

        for view in (text(plan, width=60 + seed), text_of_diff(diff(plan), width=60 + seed)):
            assert max(map(len, view.splitlines())) <= 60 + seed
            assert not any(line != line.rstrip() for line in view.splitlines())
        assert text(plan, ascii_only=True).isascii()
        assert text_of_diff(diff(plan), ascii_only=True).isascii()


def test_what_went_another_way_than_meant_is_said():
    violations = broken(Rule.SHARING, "node h100-02 gpu 4", "1.5 GPUs", "1 GPU")
    plan = small_plan(
        solver="greedy",
        objective=43_790,
        bound=None,
        fallback=Fallback(
            tried="milp", used="greedy", reason="the time limit of 1 s passed without an answer"
        ),
        rejected=(Rejected(solver="milp", violations=violations),),
        not_disaggregated=2,
    )

    assert text(plan).startswith(HEAD + shown("""
        greedy FEASIBLE  objective 43,790  bound unknown  in 6.0 s
        terms  completion +43,790  (greedy 43,790)
        Fell back from milp to greedy: the time limit of 1 s passed without an answer
        Rejected an answer that breaks a rule: milp: sharing: node h100-02 gpu 4: found
        1.5 GPUs, allowed 1 GPU
        2 jobs of the solver's answer found no concrete place and wait

          + start""")[:-1])  # fmt: skip


def test_a_clock_that_ends_a_deterministic_search_is_told():
    deterministic = {"policy": Policy(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))}
    told = "The clock ended the search after 6.0 s"

    assert told in text(small_plan(ended=Ended.TIME).model_copy(update=deterministic))
    assert told not in text(small_plan(ended=Ended.TICKS).model_copy(update=deterministic))
    assert told not in text(small_plan(ended=Ended.TIME))


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
    assert "makes room for 45 jobs; costs " in found


def on(index, count):
    return [replica(f"n{index}", gpus=[gpu]) for gpu in range(count)]


def test_a_plan_that_changes_nothing_says_why():
    proven = {"status": SolveStatus.OPTIMAL, "objective": 0, "bound": 0, "greedy_objective": 0}
    idle = snapshot(nodes=cluster(1), jobs=[])
    worthless = snapshot(nodes=cluster(1), jobs=[job(gpus=1, weight=0)])

    assert "No changes: nothing waits, and no change pays (proven" in text(small_plan(idle, (), **proven))
    assert "No changes: no change pays (proven, " in text(small_plan(worthless, (), **proven))


def test_a_guarantee_that_is_missed_is_told_and_one_that_nobody_asks_for_is_not():
    jobs = [
        job("r", gpus=8, queue="research", at=[replica(gpus=range(8))]),
        job("w", gpus=6, queue="research"),
    ]
    queues = [queue("research", nominal=16, guarantee=12), queue("idle", nominal=16, guarantee=4)]

    lines = text(small_plan(snapshot(nodes=cluster(1), jobs=jobs, queues=queues), ())).splitlines()

    assert [line for line in lines if "guaranteed" in line] == ["queue research: 8 of 12 guaranteed GPUs"]


def test_a_guarantee_counts_what_queues_below_hold_and_no_held_job():
    jobs = [
        job("r", gpus=3, queue="leaf", at=[replica(gpus=range(3))]),
        job("w", gpus=1, queue="leaf"),
        job("h", gpus=8, queue="leaf", held=True),
    ]
    queues = [queue("top", nominal=16, guarantee=12), queue("leaf", parent="top")]

    assert "queue top: 3 of 4 guaranteed GPUs" in text(
        small_plan(snapshot(nodes=cluster(1), jobs=jobs, queues=queues), ())
    )


def test_a_drain_that_has_to_wait_names_the_jobs_and_why():
    jobs = [
        job("fixed", gpus=1, preemptible=False, at=[replica(gpus=[0])]),
        job("other", gpus=1, at=[replica(gpus=[1])]),
    ]
    world = snapshot(nodes=[node(drain=True), node("n1", drain=True)], jobs=jobs)

    lines = text(small_plan(world, ())).splitlines()

    assert [line for line in lines if "drain waits" in line] == [
        "node n0: drain waits for fixed (not preemptible) and other (stays)"
    ]


def test_where_no_gpu_is_free_nothing_is_said_about_whole_nodes():
    world = snapshot(nodes=[node(), node("n1", drain=True)], jobs=[job("a", gpus=8)])

    assert "free GPUs" not in text(small_plan(world, [placement("a", replica(gpus=range(8)))]))


def test_a_proof_that_nothing_can_start_is_said():
    world = WORLD.model_copy(update={"jobs": tuple(job for job in WORLD.jobs if job.running or job.held)})
    plan = small_plan(world, (), status=SolveStatus.OPTIMAL, objective=0, bound=0, greedy_objective=0)

    assert text(plan) == HEAD + shown("""
        milp OPTIMAL  objective 0  bound 0  gap 0.0 %  in 6.0 s
        terms  completion 0  (greedy 0)

          . wait  notebook  1 GPU  queue batch  held by its user or an operator

        allocated 18.8 %  free GPUs in whole nodes 92.3 %  fairness 1.00  cost 196.00/h
        No changes: nothing that waits can start now (proven, gap 0.0 %). 1 waiting, 2
        unchanged.
        """)


def test_without_a_proof_no_changes_is_not_called_proven():
    found = text(small_plan(started=(), bound=None))

    assert "No changes: nothing better was found (bound unknown). 7 waiting, 2 unchanged." in found
    assert "Next:" not in found


def test_without_a_file_there_is_no_next_command():
    assert "Next:" not in text(small_plan(), path=None)


@pytest.mark.parametrize("path", [None, "-"])
def test_no_command_is_shown_for_a_plan_that_is_in_no_file(path):
    found = text(crowd(), path=path)

    assert "Next:" not in found
    assert "each one: gpuplan plan … --all" in found
    assert "each one: --all" in text_of_diff(diff(crowd()), path=path)


def test_where_nothing_is_free_nothing_is_said_about_what_is_free():
    world = snapshot(nodes=cluster(1), jobs=[job("a", gpus=8)])

    assert "free GPUs" not in text(small_plan(world, [placement("a", replica(gpus=range(8)))]))


def crowd():
    """Hundreds of starts and waits."""
    jobs = [
        *(job(f"share-{index:03d}", milli=250, queue=f"q{index % 3}") for index in range(240)),
        *(job(f"big-{index:02d}", gpus=8, queue="q0") for index in range(60)),
        *(job(f"held-{index:02d}", gpus=1, queue="q1", held=True) for index in range(30)),
    ]
    nodes = cluster(30)
    started = [
        *(
            placement(f"share-{index:03d}", replica(f"n{index // 32}", gpus=[index // 4 % 8], milli=250))
            for index in range(200)
        ),
        *(placement(f"big-{index:02d}", replica(f"n{index + 7}", gpus=range(8))) for index in range(23)),
    ]
    queues = [queue("q0", nominal=100), queue("q1"), queue("q2")]
    return small_plan(snapshot(nodes=nodes, jobs=jobs, queues=queues), started)


def test_many_actions_are_grouped_and_the_rest_is_counted():
    lines = text(crowd()).split("\n\n", 1)[1]

    assert lines == shown("""
          + start  23 jobs  8 GPUs    23 nodes  queue q0  184 GPUs in all
          + start  67 jobs  0.25 GPU  7 nodes   queue q0  16.75 GPUs in all
          + start  67 jobs  0.25 GPU  7 nodes   queue q1  16.75 GPUs in all
          + start  66 jobs  0.25 GPU  7 nodes   queue q2  16.5 GPUs in all
          Grouped by size and queue; each one: gpuplan show plan.json --all

          . wait  30 jobs  Held
                    30  held by its user or an operator
          . wait  50 jobs  WaitingForQuota
                    37  needs 8 GPUs; queue q0 uses 200.75 of 100 GPUs
                    13  needs 0.25 GPU; queue q0 uses 200.75 of 100 GPUs
          . wait  27 jobs  NotChosen
                    27  would fit, but no place was chosen for it in the time given
          Grouped by reason; each one: gpuplan show plan.json --all

        allocated 0.0 % → 97.5 %  free GPUs in whole nodes 0.0 %  fairness 0.92
        Plan: 223 to start, 0 to preempt, 107 waiting, 0 unchanged.
        Next: gpuplan apply plan.json --executor simulated
        """)


def test_every_job_is_shown_when_all_are_asked_for():
    plan = crowd()

    found = text(plan, verbose=True)

    assert all(re.search(rf"\b{job.name}\b", found) for job in plan.snapshot.jobs)
    assert "Grouped" not in found


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


def test_colour_is_only_paint():
    plain, painted = text(small_plan()), text(small_plan(), colour=True)

    assert painted != plain
    assert COLOURS.sub("", painted) == plain


def test_what_a_terminal_would_obey_is_shown_instead():
    nodes = cluster(2, rack="\x1b[31mr\n1é")
    plan = small_plan(
        snapshot(nodes=nodes, jobs=[job(gpus=8, replicas=2)]),
        [placement("a", replica(gpus=range(8)), replica("n1", gpus=range(8)))],
    )

    assert r"one rack (\x1b[31mr\n1é)" in text(plan, width=120)
    assert r"one rack (\x1b[31mr\n1\xe9)" in text(plan, width=120, ascii_only=True)


@settings(max_examples=60, deadline=None)
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


def test_a_diff_at_eighty_columns():
    assert text_of_diff(diff(small_plan())) == shown("""
        Diff of plan 7c1e55aa

        Jobs: 3 change, 2 unchanged, 4 waiting
             JOB          SIZE        NODES         QUEUE
          +  infer-a      0.46 GPU    h100-02       batch
          +  prepare      16 CPUs     h100-02       batch
          +  train-llama  4 × 8 GPUs  h100-[03-06]  research

        Nodes: 5 change
          NODE     GPUS  FREE GPUS  ARRIVING
          h100-02  8     4 → 3.54   infer-a, prepare
          h100-03  8     8 → 0      train-llama
          h100-04  8     8 → 0      train-llama
          h100-05  8     8 → 0      train-llama
          h100-06  8     8 → 0      train-llama

        Queues
          QUEUE       GPUS USED   LIMIT  WAITING
          all         12 → 44.46  none   0
            batch     12 → 12.46  none   4 → 2
            research  0 → 32      48     3 → 2

        GPU models
          GPU MODEL  USABLE  GPUS USED   ALLOCATED
          H100-80GB  64      12 → 44.46  18.8 % → 69.5 %
        """)


def test_a_diff_of_every_type_of_action_at_eighty_columns():
    assert text_of_diff(diff(busy_plan())) == shown("""
        Diff of plan 7c1e55aa

        Jobs: 10 change, 1 unchanged, 2 waiting (1 of them stopped by this plan)
             JOB          SIZE            NODES              QUEUE
          +  distill      6 GPUs          h100-02            research
          ~  embed        1 → 2 × 1 GPU   h100-03            batch
          >  eval         1 GPU           old-1 → cloud-1    batch
          +  infer-a      2 × 1g.10gb     mig-1              batch
          >  notebook     1 GPU           h100-04 → mig-1    batch
          +  render       6 GPUs          cloud-1            batch
          -  sweep-117    8 GPUs          h100-01            batch
          >  sweep-118    4 GPUs          h100-02 → h100-03  batch
          +  train-llama  2 × 8 GPUs      h100-[01,05]       research
          ~  tune         2 → 1 × 2 GPUs  h100-02            batch

        Nodes: 6 change, 1 added, 2 removed
             NODE     GPUS  FREE GPUS  ARRIVING           LEAVING
          +  cloud-1  8     1          eval, render
             h100-01  8     0          train-llama        sweep-117
             h100-02  8     0          distill            sweep-118, tune
             h100-03  8     7 → 2      embed, sweep-118
             h100-04  8     7 → 8                         notebook
             h100-05  8     8 → 0      train-llama
             mig-1    2     1 → 0      infer-a, notebook
          -  old-1    8     7                             eval
          -  old-2    8     8

        MIG layouts: 1 change
          NODE   GPU  LAYOUT
          mig-1  0    2 × 3g.40gb → 3g.40gb + 2 × 1g.10gb

        Queues
          QUEUE       GPUS USED        LIMIT  WAITING
          all         19.428 → 38.712  none   0
            batch     19.428 → 16.712  none   2 → 1
            research  0 → 22           48     3 → 1

        GPU models
          GPU MODEL  USABLE   GPUS USED        ALLOCATED
          H100-80GB  58 → 50  19.428 → 38.712  33.5 % → 77.4 %
        """)


def test_drift_comes_first_and_marks_what_the_plan_counts_on():
    later = job("late", queue="batch", waited=-timedelta(minutes=1))
    live = WORLD.model_copy(
        update={"jobs": (*WORLD.jobs[1:], later), "cluster": Cluster(nodes=(*NODES[:2], *NODES[3:]))}
    )
    found = diff(small_plan(), live).model_copy(update={"live": "ab12" * 16})

    assert text_of_diff(found).startswith(shown("""
        Diff of plan 7c1e55aa

        Drift: 3 changed since in snapshot ab12ab12; apply would refuse the plan:
          job infer-a is gone: expected a waiting job, found no such job
          node h100-03 is gone: expected a node that is ready, found no such node

        Changed since
             SUBJECT
          !  job infer-a   is gone
          !  node h100-03  is gone
             job late      is new

        Jobs: 3 change"""))  # fmt: skip


def test_drift_that_an_apply_would_accept_is_said_to_be():
    live = WORLD.model_copy(update={"jobs": (*WORLD.jobs, job("late", queue="batch"))})
    found = diff(small_plan(), live).model_copy(update={"live": "ab12" * 16})

    assert text_of_diff(found).startswith(shown("""
        Diff of plan 7c1e55aa

        Drift: 1 changed since in snapshot ab12ab12; apply would still accept the plan
            SUBJECT
            job late  is new

        Jobs: 3 change"""))  # fmt: skip


def test_many_reasons_to_refuse_are_cut_and_the_hint_does_not_forget_the_snapshot():
    plan = crowd()
    live = plan.snapshot.model_copy(update={"jobs": ()})

    lines = text_of_diff(diff(plan, live)).splitlines()

    assert sum(line.startswith("  job ") and ": expected" in line for line in lines) == 19
    assert "  … 204 more; each one: --all" in lines
    assert not any("gpuplan diff" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_no_drift_and_no_changes_are_said_in_words():
    found = diff(small_plan(started=()), WORLD).model_copy(update={"live": "ab12" * 16})

    assert text_of_diff(found).startswith(shown("""
        Diff of plan 7c1e55aa

        Snapshot ab12ab12 is as the plan expects it.

        No changes: 7 waiting, 2 unchanged.

        Queues
        """))  # fmt: skip


@pytest.mark.parametrize("verbose", [False, True])
def test_long_tables_are_cut_unless_all_is_asked_for(verbose):
    lines = text_of_diff(diff(crowd()), verbose=verbose).splitlines()

    jobs = [line for line in lines if line.startswith("  + ")]
    assert len(jobs) == (223 if verbose else 19)
    assert ("  … 204 more; each one: gpuplan diff plan.json --all" in lines) is not verbose


def test_models_with_quotas_have_rows_of_their_own():
    world = snapshot(queues=[queue(nominal=16, **{"H100-80GB": 8})], jobs=[job(gpus=1)])

    found = text_of_diff(diff(drafted(world, placement("a", replica(gpus=[0])))))

    assert shown("""
        Queues
          QUEUE  GPU MODEL  GPUS USED  LIMIT  WAITING
          q      all        0 → 1      16     1 → 0
          q      H100-80GB  0 → 1      8
        """) in found  # fmt: skip
