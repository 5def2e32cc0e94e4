from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.plan.solution import Fallback, SolveStatus
from gpuplan.planner.render.reports.plan import plan_report
from tests.support.builders.build import cluster, job, node, placement, queue, replica, snapshot
from tests.support.builders.search_log_builders import MILESTONES
from tests.support.builders.solution_builders import drafted
from tests.support.output.html_pages import Page, page
from tests.support.samples.sample_plans import busy_plan, small_plan, throng
from tests.support.seeds import examples
from tests.support.strategies.placement_strategies import legal_placements
from tests.support.strategies.snapshot_strategies import snapshots


def test_the_page_shows_what_the_plan_claims():
    text = page(small_plan()).text

    assert "Plan 7c1e55aa: 3 to start, 0 to preempt, 4 waiting, 2 unchanged" in text
    assert "45,900 greedy alone 43,790" in text
    assert "0.9 % bound 46,330" in text
    assert "milp feasible, in 6.0 s" in text
    assert "69.5 % 18.8 % before" in text


def test_every_start_and_every_reason_is_on_the_page():
    text = page(small_plan()).text

    assert "train-llama 4 × 8 GPUs h100-[03-06] research one rack (r2); waited 3h10m" in text
    assert (
        "train-next 3 × 8 GPUs research WaitingForQuota needs 24 GPUs; queue research uses 32 of 48" in text
    )
    assert "sweep-[117-118]" in text


def test_everything_a_plan_does_is_on_the_page():
    text = page(busy_plan()).text

    assert "4 to start, 1 to grow (1 GPU-hour lost), 1 to shrink (4 GPU-hours lost), 3 to migrate (6 " in text
    assert "3 to migrate (6 GPU-hours lost), 1 to preempt (8 " in text
    assert "1 to repartition, 1 node to add, 2 nodes to drain, 2 nodes to remove" in text
    assert "2 waiting (1 of them stopped by this plan)" in text
    assert "- preempt sweep-117 8 GPUs h100-01 batch makes room for train-llama" in text
    assert "> migrate eval 1 GPU old-1 → cloud-1 batch empties old-1" in text
    assert "~ shrink tune 2 → 1 × 2 GPUs h100-02 batch" in text
    assert "± repartition mig-1 gpu 0 2 × 3g.40gb → 3g.40gb + 2 × 1g.10gb for infer-a" in text
    assert "+ scale_up cloud-1 pool cloud, 8 × H100-80GB needed by eval and render" in text
    assert "- scale_down old-2 pool old no job needs it" in text
    assert re.search(r"completion \+18,000 .*nodes -4,000 .*preemption -1,500 .*resize -200", text)


def test_every_change_at_the_top_has_its_sign():
    text = page(busy_plan()).text

    lost = "~ 1 to grow (1 GPU-hour lost) ~ 1 to shrink (4 GPU-hours lost)"
    assert f"+ 4 to start {lost} > 3 to migrate" in text
    assert "- 2 nodes to remove . 2 waiting" in text


@pytest.mark.slow
def test_many_changes_fold_into_their_kinds():
    html = plan_report(throng())

    assert "<span>25 jobs</span><span>8 GPUs</span>" in html
    assert "<span>45 nodes</span><span>pool cloud</span>" in html
    text = Page(html).text
    assert all(f"- preempt old-{index:02d} 8 GPUs" in text for index in range(25))
    assert all(f"needed by old-{index:02d}; costs" in text for index in range(25, 45))


def test_queues_stand_with_their_quotas_and_models_with_their_use():
    jobs = [job("a", gpus=4, at=[replica(gpus=range(4))]), job("b", gpus=2)]
    queues = [queue("q", nominal=16, guarantee=6), queue("other", nominal=8)]

    text = page(small_plan(snapshot(jobs=jobs, queues=queues), [placement("b", replica(gpus=[4, 5]))])).text

    assert "Queue GPUs used Limit Nominal quota Guarantee Waiting" in text
    assert "q 4 → 6 16 16 6 1 → 0" in text
    assert "H100-80GB 16 4 → 6 25.0 % → 37.5 %" in text


def test_a_fallback_is_hard_to_overlook():
    plan = small_plan(solver="greedy", bound=None, fallback=Fallback("milp", "greedy", "it crashed"))

    text = page(plan).text

    assert "Fell back from milp to greedy: it crashed" in text
    assert "unknown no bound proven" in text


def test_no_changes_are_said():
    text = page(small_plan(started=(), status=SolveStatus.OPTIMAL)).text

    assert "no changes, 7 waiting, 2 unchanged" in text
    assert "Nothing starts." in text


def test_missed_guarantees_and_waiting_drains_are_on_the_page():
    jobs = [
        job("fixed", gpus=1, preemptible=False, at=[replica(gpus=[0])]),
        job("waiting", gpus=3),
    ]
    queues = [queue("q", nominal=8, guarantee=4)]

    text = page(small_plan(snapshot(nodes=[node(drain=True)], jobs=jobs, queues=queues), ())).text

    assert "queue q: 1 of 4 guaranteed GPUs" in text
    assert "node n0: drain waits for fixed (not preemptible)" in text
    assert "In whole nodes none free" in text


@pytest.mark.slow
def test_the_gap_is_drawn_where_the_search_is_known():
    plan = small_plan()

    assert "Gap over time" not in plan_report(plan)
    assert "Gap over time" in plan_report(plan, MILESTONES)


def test_what_many_jobs_wait_for_is_gathered_by_reason():
    waiting = [job(f"waits-{index:02d}", gpus=8, queue="q") for index in range(60)]

    text = page(small_plan(snapshot(jobs=waiting, queues=[queue("q", nominal=4)]), ())).text

    assert "60 × needs 8 GPUs" in text
    assert all(text.count(job.name) == 1 for job in waiting)


@pytest.mark.slow
def test_thousands_of_jobs_make_a_page_one_can_mail():
    waiting = [job(f"waits-{index:05d}", gpus=8, queue=f"q{index % 3}") for index in range(3000)]
    starts = [job(f"starts-{index:05d}", milli=250) for index in range(1000)]
    started = [
        placement(f"starts-{index:05d}", replica(f"n{index // 32}", gpus=[index // 4 % 8], milli=250))
        for index in range(1000)
    ]
    queues = [queue(), *(queue(f"q{index}", nominal=8) for index in range(3))]
    world = snapshot(nodes=cluster(32), jobs=[*waiting, *starts], queues=queues)

    html = plan_report(small_plan(world, started))

    assert len(html) < 1_000_000
    assert all(job.name in html for job in world.jobs)


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(st.data())
def test_any_plan_has_a_sound_page_with_all_its_jobs(data):
    world = data.draw(snapshots(mig=True, locality=True))
    plan = drafted(world, *data.draw(legal_placements(world))[len(world.running_placements) :])

    found = page(plan)

    moving = {action.job for action in plan.actions if action.type != "keep"}
    assert all(re.search(rf"\b{name}\b", found.text) for name in moving)
    assert found.faults == []
