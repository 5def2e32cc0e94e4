"""A diff as text: what has changed since comes first, then before and after."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Cluster
from gpuplan.planner.diff.diff import diff
from tests.support.builders.build import job, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.output.plan_texts import crowd, shown, text_of_diff
from tests.support.samples.sample_plans import NODES, WORLD, busy_plan, small_plan


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
