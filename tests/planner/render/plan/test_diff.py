"""A diff as text: what has changed since comes first, then before and after."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from gpuplan.models.cluster import Cluster
from gpuplan.planner.diff.diff import diff
from tests.support.builders.build import job, placement, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.output.golden import golden_section
from tests.support.output.plan_texts import crowd, shown, text_of_diff
from tests.support.samples.sample_plans import NODES, WORLD, busy_plan, small_plan

TEXTS = Path(__file__).with_name("texts.golden.txt")


def test_a_diff_at_eighty_columns():
    found = text_of_diff(diff(small_plan()))

    assert found == golden_section(TEXTS, "a diff", found)


def test_a_diff_of_every_type_of_action_at_eighty_columns():
    found = text_of_diff(diff(busy_plan()))

    assert found == golden_section(TEXTS, "a diff of every type of action", found)


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
