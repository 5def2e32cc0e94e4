from __future__ import annotations

import re

from answers import legal_placements
from build import cluster, job, node, placement, queue, replica, snapshot
from drafts import drafted
from hypothesis import given, settings
from hypothesis import strategies as st
from pages import Page, page
from samples import WORLD, busy_plan, small_plan, throng
from strategies import snapshots

from planner.models.solution import Fallback, SolveStatus
from planner.rendering.report import report_html


def test_the_page_shows_what_the_plan_claims():
    text = page(small_plan()).text

    assert "3 to start, 0 to preempt, 4 waiting, 2 unchanged" in text
    assert "45,900 greedy alone 43,790" in text
    assert "0.9 % bound 46,330" in text
    assert "milp feasible, in 6.0 s" in text
    assert "69.5 % 18.8 % before" in text


def test_every_start_and_every_reason_is_on_the_page():
    text = page(small_plan()).text

    assert "train-llama 4 × 8 GPUs research h100-[03-06] one rack (r2); waited 3h10m" in text
    assert "needs 24 GPUs; queue research uses 32 of 48 GPUs train-next" in text
    assert "sweep-[117-118]" in text


def test_everything_a_plan_does_is_on_the_page():
    text = page(busy_plan()).text

    assert "4 to start, 1 to grow, 1 to shrink, 3 to migrate (6 GPU-hours lost), 1 to preempt (8 " in text
    assert "1 to repartition, 1 node to add, 2 nodes to drain, 2 nodes to remove" in text
    assert "2 waiting (1 of them stopped by this plan)" in text
    assert "- preempt sweep-117 8 GPUs batch h100-01 makes room for train-llama" in text
    assert "> migrate eval 1 GPU batch old-1 → cloud-1 empties old-1" in text
    assert "~ shrink tune 2 → 1 × 2 GPUs batch h100-02" in text
    assert "± repartition mig-1 gpu 0 2 × 3g.40gb → 3g.40gb + 2 × 1g.10gb for infer-a" in text
    assert "+ scale_up cloud-1 pool cloud, 8 × H100-80GB needed by eval and render" in text
    assert "- scale_down old-2 pool old nobody needs it" in text
    assert "Objective terms: completion +18,000, nodes -4,000, preemption -1,500, resize -200." in text


def test_nodes_that_come_and_go_are_outlined():
    html = report_html(busy_plan())

    assert '<i title="cloud-1 (added): 0 → 7 of 8 GPUs" class="added" style="--b:0%;--a:88%;--r:88%">' in html
    assert (
        '<i title="old-1 (removed): 1 → 0 of 8 GPUs" class="removed" style="--b:0%;--a:0%;--r:12%">' in html
    )


def test_many_changes_fold_into_their_kinds():
    html = report_html(throng())

    assert "<span>25 jobs</span><span>8 GPUs</span>" in html
    assert "<span>45</span><span>pool cloud</span>" in html
    assert all(f"old-{index:02d}" in html for index in range(45))


def test_queues_and_models_are_drawn_against_their_limits():
    html = report_html(small_plan())

    # 48 GPUs, the limit of research, is the longest of all and so fills the width.
    queues = html[html.index('id="queues"') : html.index('id="gpu-models"')]
    research = queues[queues.index(">research<") :]
    assert 'class="added" style="width:66.67%"' in research
    assert 'class="limit" style="left:min(100.0%' in research
    assert "12 → 44.46 of 64" in html


def test_every_node_with_gpus_is_a_bar():
    html = report_html(small_plan())

    assert html.count('<i title="h100-') == len(WORLD.cluster.nodes)
    assert '<i title="h100-02: 4 → 4.46 of 8 GPUs" style="--b:50%;--a:56%;--r:56%">' in html


def test_nodes_that_are_down_are_not_drawn_as_free():
    world = snapshot(nodes=cluster(1, ready=False))

    assert '<i title="n0: down" class="off">' in report_html(small_plan(world, ()))


def test_a_fallback_is_hard_to_overlook():
    plan = small_plan(solver="greedy", bound=None, fallback=Fallback("milp", "greedy", "it crashed"))

    text = page(plan).text

    assert "Fell back from milp to greedy: it crashed" in text
    assert "unknown nobody proved a bound" in text


def test_no_changes_are_said():
    text = page(small_plan(started=(), status=SolveStatus.OPTIMAL)).text

    assert "no changes, 7 waiting, 2 unchanged" in text
    assert "Nothing starts." in text


def test_names_and_labels_cannot_become_markup():
    hostile = "<script>alert(1)</script>"
    world = snapshot(nodes=cluster(2, rack=hostile), jobs=[job(gpus=8, replicas=2)])
    started = placement("a", replica(gpus=range(8)), replica("n1", gpus=range(8)))

    found = page(small_plan(world, [started]))

    assert "script" not in found.tags
    assert hostile in found.text


def test_the_page_needs_nothing_from_elsewhere():
    html = report_html(small_plan())

    found = Page(html)
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in html
    assert "http:" not in html
    assert "https:" not in html


def test_thousands_of_jobs_make_a_page_one_can_mail():
    waiting = [job(f"waits-{index:05d}", gpus=8, queue=f"q{index % 3}") for index in range(3000)]
    starts = [job(f"starts-{index:05d}", milli=250) for index in range(1000)]
    started = [
        placement(f"starts-{index:05d}", replica(f"n{index // 32}", gpus=[index // 4 % 8], milli=250))
        for index in range(1000)
    ]
    queues = [queue(), *(queue(f"q{index}", nominal=8) for index in range(3))]
    world = snapshot(nodes=cluster(32), jobs=[*waiting, *starts], queues=queues)

    html = report_html(small_plan(world, started))

    assert len(html) < 1_000_000
    assert all(job.name in html for job in world.jobs)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_plan_has_a_page_with_all_its_jobs(data):
    world = data.draw(snapshots(mig=True, locality=True))
    plan = drafted(world, *data.draw(legal_placements(world))[len(world.running_placements) :])

    text = page(plan).text

    moving = {action.job for action in plan.actions if action.type != "keep"}
    assert all(re.search(rf"\b{name}\b", text) for name in moving)


def test_missed_guarantees_and_waiting_drains_are_on_the_page():
    jobs = [
        job("fixed", gpus=1, preemptible=False, at=[replica(gpus=[0])]),
        job("waiting", gpus=8),
    ]
    queues = [queue("q", nominal=8, guarantee=4)]

    text = page(small_plan(snapshot(nodes=[node(drain=True)], jobs=jobs, queues=queues), ())).text

    assert "queue q: 1 of 4 guaranteed GPUs" in text
    assert "node n0: drain waits for fixed (not preemptible)" in text
    assert "In whole nodes none free" in text
