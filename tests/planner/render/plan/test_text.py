"""A plan as text: every line of it, in colour and in ASCII."""

from __future__ import annotations

import re

from tests.support.builders.build import cluster, job, placement, replica, snapshot
from tests.support.output.plan_texts import COLOURS, HEAD, shown, text
from tests.support.samples.sample_plans import busy_plan, small_plan


def test_a_plan_at_eighty_columns():
    assert text(small_plan()) == HEAD + shown("""
        milp FEASIBLE  objective 45,900  bound 46,330  gap 0.9 %  in 6.0 s
        goal value  terms  completion +45,900  (greedy 43,790)

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
                  needs 24 GPUs; queue research uses 32 of 48 GPUs; priority 0 comes
                  after train-llama of higher priority with 32 GPUs
          . wait  render      3 × 8 GPUs  queue batch
                  needs 24 GPUs; 19.54 GPUs free on 8 matching nodes; priority 0 comes
                  after train-llama of higher priority with 32 GPUs

        allocated 18.8 % → 69.5 %  free GPUs in whole nodes 81.9 %  fairness 0.99
          cost 196.00/h
        Plan: 3 to start, 0 to preempt, 4 waiting, 2 unchanged.
        Next: gpuplan apply plan.json --executor simulated
        """)


def test_every_name_is_whole_and_every_reason_wrapped_in_ascii():
    found = text(small_plan(), ascii_only=True, verbose=True, path="my plan.json")

    assert found == HEAD + shown("""
        milp FEASIBLE  objective 45,900  bound 46,330  gap 0.9 %  in 6.0 s
        goal value  terms  completion +45,900  (greedy 43,790)

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
                  needs 24 GPUs; queue research uses 32 of 48 GPUs; priority 0 comes
                  after train-llama of higher priority with 32 GPUs
          . wait  render      3 x 8 GPUs  queue batch
                  needs 24 GPUs; 19.54 GPUs free on 8 matching nodes; priority 0 comes
                  after train-llama of higher priority with 32 GPUs

        allocated 18.8 % -> 69.5 %  free GPUs in whole nodes 81.9 %  fairness 0.99
          cost 196.00/h
        Plan: 3 to start, 0 to preempt, 4 waiting, 2 unchanged.
        Next: gpuplan apply 'my plan.json' --executor simulated
        """)


def test_every_type_of_action_at_eighty_columns():
    assert text(busy_plan()) == HEAD + shown("""
        milp FEASIBLE  objective 12,300  bound 13,000  gap 5.7 %  in 6.0 s
        goal value  terms  completion +18,000  nodes -4,000  preemption -1,500
          resize -200  (greedy 9,000)

          + start  train-llama  2 × 8 GPUs   h100-[01,05]  queue research
                   waited 3h10m; takes the place of sweep-117
          + start  distill      6 GPUs       h100-02       queue research
                   just submitted; takes the place of sweep-118 and tune
          + start  render       6 GPUs       cloud-1       queue batch
                   on 1 new node; just submitted
          + start  infer-a      2 × 1g.10gb  mig-1         queue batch
                   just submitted

          ~ grow     embed      1 → 2 × 1 GPU   h100-03            queue batch
                     1 → 2 replicas of at most 3; ran 1h, loses 1 GPU-hour without a
                     checkpoint; costs 20 points: work +100, resize -120
          ~ shrink   tune       2 → 1 × 2 GPUs  h100-02            queue batch
                     2 → 1 replicas of at least 1; makes room for distill; ran 1h, loses
                     4 GPU-hours without a checkpoint; costs 650 points: work -200,
                     resize -450
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
                     checkpoint; costs 1,680 points: work -800, preemption -880

          + scale_up     cloud-1      pool cloud, 8 × H100-80GB
                         needed by eval and render; costs 40.00/h, ready after 10m
          ± repartition  mig-1 gpu 0  2 × 3g.40gb → 3g.40gb + 2 × 1g.10gb  for infer-a
          ~ cordon       old-1
                         to be removed once eval has left
          ~ drain        h100-04
                         confirms that notebook has left a node to be drained
          ~ drain        old-1
                         confirms that eval has left a node to be removed
          - scale_down   old-1        pool old
                         no job needs it; saves 20.00/h
          - scale_down   old-2        pool old
                         no job needs it; saves 20.00/h

          . wait  train-moe  8 × 8 GPUs  queue research
                  needs 64 GPUs; queue research may never hold more than 48 GPUs

        allocated 33.5 % → 77.4 %  free GPUs in whole nodes 0.0 %  fairness 0.85
          cost 168.50/h
        Plan: 4 to start, 1 to grow (1 GPU-hour lost), 1 to shrink (4 GPU-hours lost), 3
        to migrate (6 GPU-hours lost), 1 to preempt (8 GPU-hours lost), 1 to
        repartition, 1 node to add, 2 nodes to drain, 2 nodes to remove, 2 waiting (1 of
        them stopped by this plan), 1 unchanged.
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
