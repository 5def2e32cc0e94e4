from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.models.eligibility.free_resources import free_resources_by_node
from gpuplan.models.plan.diff import Diff
from gpuplan.models.policy.policy import Drift, Policy
from gpuplan.planner.analysis.metrics import gpus_in_use
from gpuplan.planner.diff.diff import diff
from tests.support.builders.build import cluster, job, node, placement, pool, queue, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.samples.sample_plans import busy_plan
from tests.support.seeds import examples
from tests.support.strategies.placement_strategies import legal_placements
from tests.support.strategies.snapshot_strategies import snapshots


def changes(found):
    return [(item.subject, item.change, item.touched) for item in found.drift]


def test_only_what_changes_is_listed():
    world = snapshot(
        nodes=cluster(3),
        jobs=[job("a", gpus=2), job("b", gpus=1), job("c", gpus=8, at=[replica("n1", gpus=range(8))])],
    )

    found = diff(drafted(world, placement("a", replica(gpus=[0, 1]))))

    assert [(change.job, change.before) for change in found.jobs] == [("a", None)]
    assert (found.unchanged, found.waiting) == (1, 1)
    (changed,) = found.nodes
    assert (changed.node, changed.gpus) == ("n0", 8)
    assert (changed.free_before_milli, changed.free_after_milli) == (8000, 6000)
    assert changed.arriving == ("a",)


def test_a_plan_that_starts_nothing_is_empty():
    assert diff(drafted(snapshot(jobs=[job("a", gpus=1)]))).empty


def test_queues_come_as_a_tree_with_usage_that_counts_against_limits():
    queues = [
        queue("z", nominal=4, **{"H100-80GB": 3}),
        queue("b", parent="z", nominal=2, lending=0),
        queue("a", parent="z"),
        queue("m"),
    ]
    world = snapshot(
        queues=queues,
        jobs=[job("x", gpus=3, queue="b"), job("y", gpus=1, queue="a", at=[replica(gpus=[0])])],
    )

    found = diff(drafted(world, placement("x", replica(gpus=[1, 2, 3]))))

    rows = [
        (row.queue, row.gpu_model, row.used_before_milli, row.used_after_milli, row.limit_milli)
        for row in found.queues
    ]
    # Queue b keeps 2 of the 3 GPUs it uses; only the third counts above it.
    assert rows == [
        ("m", "", 0, 0, None),
        ("z", "", 1000, 2000, 4000),
        ("z", "H100-80GB", 1000, 4000, 3000),
        ("a", "", 1000, 1000, None),
        ("b", "", 0, 3000, None),
    ]
    waiting = {row.queue: (row.waiting_before, row.waiting_after) for row in found.queues}
    assert waiting["b"] == (1, 0)


def test_quotas_of_cpu_cores_and_memory_have_rows_of_their_own():
    queues = [queue("all", cpus=9), queue("q", parent="all", cpus=(4, 2, None), memory="8Gi")]
    world = snapshot(queues=queues, jobs=[job("x", cpus=5, memory_gib=2)])

    found = diff(drafted(world, placement("x", replica(cpus=5, memory_gib=2))))

    rows = {(row.queue, row.resource): (row.used_after_milli, row.limit_milli) for row in found.queues}
    assert rows["all", "cpus"] == (5000, 13_000)
    assert rows["q", "cpus"] == (5000, 6000)
    assert rows["q", "gpus"] == (0, None)
    # Queue q may borrow without limit, so that only the limit of the tree remains.
    assert rows["all", "memory"] == (2048_000, 8192_000)
    assert ("q", "memory") not in rows


def test_gpu_models_tell_what_is_usable():
    world = snapshot(
        nodes=[node(model="A"), node("n1", model="A", ready=False), node("n2", model="B", gpus=2)],
        jobs=[job("a", milli=500)],
    )

    found = diff(drafted(world, placement("a", replica("n2", gpus=[0], milli=500))))

    rows = [
        (row.gpu_model, row.usable_after_milli, row.used_before_milli, row.used_after_milli)
        for row in found.gpu_models
    ]
    assert rows == [("A", 8000, 0, 0), ("B", 2000, 0, 500)]


def test_changes_of_running_jobs_nodes_and_layouts_are_told():
    found = diff(busy_plan())

    assert {change.job: change.change for change in found.jobs} == {
        "distill": "start",
        "embed": "grow",
        "eval": "migrate",
        "infer-a": "start",
        "notebook": "migrate",
        "render": "start",
        "sweep-117": "preempt",
        "sweep-118": "migrate",
        "train-llama": "start",
        "tune": "shrink",
    }
    assert (found.unchanged, found.waiting) == (1, 1)
    nodes = {node.node: node for node in found.nodes}
    assert {name: node.change.value for name, node in nodes.items() if node.change != "kept"} == {
        "cloud-1": "added",
        "old-1": "removed",
        "old-2": "removed",
    }
    assert (nodes["cloud-1"].free_before_milli, nodes["cloud-1"].free_after_milli) == (0, 1000)
    assert (nodes["old-1"].free_before_milli, nodes["old-1"].free_after_milli) == (7000, 0)
    assert (nodes["h100-02"].arriving, nodes["h100-02"].leaving) == (("distill",), ("sweep-118", "tune"))
    (layout,) = found.layouts
    assert (layout.node, layout.gpu, len(layout.before), len(layout.after)) == ("mig-1", 0, 2, 3)
    (model,) = found.gpu_models
    assert (model.usable_before_milli, model.usable_after_milli) == (58_000, 50_000)


def test_nodes_given_back_alone_are_a_change():
    old = pool("old", template=node("old"))
    world = snapshot(nodes=[node(), node("old-1", pool="old")], pools=[old])

    found = diff(drafted(world, removed=["old-1"]))

    assert not found.empty
    assert [node.node for node in found.nodes] == ["old-1"]


def test_gpus_on_new_nodes_count_against_quotas():
    cloud = pool("cloud", template=node("cloud", pool="cloud"))
    new = cloud.template.model_copy(update={"name": "cloud-1"})
    world = snapshot(nodes=[], pools=[cloud], jobs=[job("a", gpus=8)])

    found = diff(drafted(world, placement("a", replica("cloud-1", gpus=range(8))), added=[new]))

    assert [row.used_after_milli for row in found.queues] == [8000]


def test_without_a_newer_snapshot_nothing_is_said_about_drift():
    found = diff(drafted(snapshot()))

    assert found.live is None
    assert found.drift == ()


def test_the_same_snapshot_in_another_order_has_not_drifted():
    world = snapshot(jobs=[job("a", gpus=1), job("b", gpus=1)])
    mixed = world.model_copy(update={"jobs": world.jobs[::-1]})

    found = diff(drafted(world), mixed)

    assert found.live == world.fingerprint()
    assert found.drift == ()


def test_every_way_to_drift_is_named_and_what_the_plan_counts_on_comes_first():
    at = [replica("n1", gpus=[0])]
    before = snapshot(
        nodes=cluster(4),
        queues=[queue(), queue("old"), queue("p")],
        jobs=[
            job("ends", gpus=1, at=at),
            job("goes", gpus=1),
            job("starts", gpus=1),
            job("stops", gpus=1, at=at),
            job("changes", gpus=1),
            job("moves", gpus=1, at=at),
            job("same", gpus=1),
        ],
    )
    plan = drafted(before, placement("changes", replica(gpus=[0])))
    live = snapshot(
        nodes=[*cluster(3, cordoned=True)[:1], *cluster(3)[1:], node("n9")],
        queues=[queue(nominal=5), queue("p"), queue("young")],
        jobs=[
            job("starts", gpus=1, at=[replica("n1", gpus=[2])]),
            job("stops", gpus=1),
            job("changes", gpus=1, priority=3, user="else"),
            job("moves", gpus=1, at=[replica("n2", gpus=[0])]),
            job("new", gpus=1),
            job("same", gpus=1),
        ],
    )

    assert changes(diff(plan, live)) == [
        ("job changes", "changed in priority, user", True),
        ("node n0", "changed in cordoned", True),
        ("job ends", "has ended", False),
        ("job goes", "is gone", False),
        ("job moves", "changed in running", False),
        ("job new", "is new", False),
        ("job starts", "has started on n1", False),
        ("job stops", "was stopped and waits again", False),
        ("node n3", "is gone", False),
        ("node n9", "is new", False),
        ("queue old", "is gone", False),
        ("queue q", "changed in quota", False),
        ("queue young", "is new", False),
    ]


PLANNED = placement("a", replica(gpus=[0]))
THIEF = job("thief", gpus=1, at=[replica(gpus=[7])])


def test_a_stranger_on_a_node_of_the_plan_makes_it_stale():
    before = snapshot(nodes=cluster(2), jobs=[job("a", gpus=1)])
    live = snapshot(nodes=cluster(2), jobs=[job("a", gpus=1), THIEF])

    found = diff(drafted(before, PLANNED), live)

    assert found.stale == ("job thief now runs on n0: expected not running there, found running there",)
    assert changes(found) == [("job thief", "is new", True)]


def test_what_makes_a_plan_stale_is_for_its_policy_to_say():
    before, live = snapshot(jobs=[job("a", gpus=1)]), snapshot(jobs=[job("a", gpus=1), THIEF])

    found = diff(drafted(before, PLANNED, policy=Policy(drift=Drift.PRECONDITIONS)), live)

    assert found.drift
    assert found.stale == ()


def test_starts_that_are_done_exactly_as_planned_make_nothing_stale():
    jobs = [job("a", gpus=1), job("b", gpus=1)]
    plan = drafted(snapshot(jobs=jobs), PLANNED, placement("b", replica(gpus=[1])))

    as_planned = snapshot(jobs=[job("a", gpus=1, at=PLANNED.replicas), jobs[1]])
    elsewhere = snapshot(jobs=[job("a", gpus=1, at=[replica(gpus=[2])]), jobs[1]])

    assert diff(plan, as_planned).stale == ()
    assert "job a is already running" in diff(plan, elsewhere).stale[0]


def test_a_rule_that_the_plan_would_break_by_now_makes_it_stale():
    before = snapshot(jobs=[job("a", gpus=1)], queues=[queue(nominal=1)])
    live = snapshot(jobs=[job("a", gpus=1)], queues=[queue(nominal=0)])

    (broken,) = diff(drafted(before, PLANNED), live).stale

    assert broken.startswith("it would break a rule: quota: queue q: found 1 GPU")


VICTIM = job("v", gpus=8, at=[replica(gpus=range(8))])
WINNER = job("w", gpus=8, priority=3)


def test_a_plan_that_is_done_in_part_is_judged_by_the_rest():
    before = snapshot(nodes=[node()], jobs=[VICTIM, WINNER])
    plan = drafted(before, placement("w", replica(gpus=range(8))), stopped=["v"])
    waits = VICTIM.model_copy(update={"running": None})

    halfway = snapshot(nodes=[node()], jobs=[waits, WINNER])
    done = snapshot(nodes=[node()], jobs=[waits, job("w", gpus=8, priority=3, at=[replica(gpus=range(8))])])
    stolen = snapshot(nodes=[node()], jobs=[waits, WINNER, THIEF])

    assert diff(plan, halfway).stale == ()
    assert diff(plan, done).stale == ()
    assert "job thief now runs on n0" in diff(plan, stolen).stale[0]


def test_a_victim_that_ended_by_itself_makes_the_plan_stale():
    before = snapshot(nodes=[node()], jobs=[VICTIM, WINNER])
    plan = drafted(before, placement("w", replica(gpus=range(8))), stopped=["v"])

    found = diff(plan, snapshot(nodes=[node()], jobs=[WINNER]))

    assert changes(found) == [("job v", "has ended", True)]
    assert found.stale


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(st.data())
def test_before_and_the_diff_give_after(data):
    world = data.draw(snapshots(mig=True))
    placements = tuple(data.draw(legal_placements(world)))
    plan = drafted(world, *placements[len(world.running_placements) :])

    found = diff(plan)

    placed = {placement.job: placement for placement in world.running_placements}
    for change in found.jobs:
        assert placed.get(change.job) == change.before
        placed[change.job] = change.after
    assert placed == {placement.job: placement for placement in plan.placements}

    free = _free(world, world.running_placements)
    for node_diff in found.nodes:
        assert free[node_diff.node] == node_diff.free_before_milli
        free[node_diff.node] = node_diff.free_after_milli
    assert free == _free(world, placements)

    used_after, _ = gpus_in_use(world.cluster, placements)
    assert Counter({row.gpu_model: row.used_after_milli for row in found.gpu_models}) == used_after
    waiting = {(row.queue): row.waiting_after for row in found.queues}
    assert sum(waiting.values()) == len(plan.waiting) == found.waiting


def _free(world, placements):
    """Thousandths of GPUs free by node."""
    free = free_resources_by_node(world.cluster.nodes, placements)
    return {name: sum(max(0, milli) for milli in left.gpu_milli) for name, left in free.items()}


@pytest.mark.slow
@settings(max_examples=30)
@given(st.data())
def test_a_diff_survives_its_document(data):
    world = data.draw(snapshots())
    plan = drafted(world, *data.draw(legal_placements(world))[len(world.running_placements) :])

    found = diff(plan, world)

    assert Diff.model_validate_json(found.model_dump_json()) == found
