"""How a queue stands once a plan is carried out: usage, guarantees, waiting jobs, one GPU more."""

from __future__ import annotations

import pytest

from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.planner.explain.queue import explain_queue
from gpuplan.planner.render.explain_node_queue import queue_text
from gpuplan.planner.render.style import Style
from tests.support.builders.build import job, node, queue, replica, snapshot
from tests.support.harness.explain_helpers import CALM, greedy_plan

LAYOUT = Style(width=80, ascii_only=True)


def old(name, *gpus, node="n0", **more):
    return job(name, gpus=len(gpus), at=[replica(node, gpus=gpus)], **more)


def tree(**more):
    return [queue("all"), queue("q", parent="all", nominal=4, **more), queue("r", parent="all", nominal=4)]


def test_what_a_queue_uses_borrows_and_leaves():
    world = snapshot(queues=tree(), jobs=[old("big", *range(6)), old("small", 0, node="n1", queue="r")])
    plan = greedy_plan(world, CALM)

    borrower, lender = explain_queue(plan, "q").quotas[0], explain_queue(plan, "r").quotas[0]

    assert (borrower.used_milli, borrower.borrowed_milli, borrower.unused_milli) == (6000, 2000, 0)
    assert (lender.used_milli, lender.borrowed_milli, lender.unused_milli) == (1000, 0, 3000)


def test_quotas_of_cpu_cores_and_memory_are_told_in_their_units():
    work = job("a", cpus=6, memory_gib=3, at=[replica("n0", cpus=6, memory_gib=3)])
    limited = queue("q", parent="all", cpus=(4, 4, None), memory="2Gi")
    world = snapshot(queues=[queue("all", cpus=9), limited], jobs=[work])
    found = explain_queue(greedy_plan(world, CALM), "q")

    _, cores, memory = found.quotas

    told = cores.used_milli, cores.limit_milli, cores.nominal_milli, cores.borrowed_milli
    assert (cores.resource, *told) == ("cpus", 6000, 8000, 4000, 2000)
    assert memory.model_dump(mode="json", by_alias=True)["used"] == 3072
    assert (memory.resource, memory.nominal_milli, memory.guarantee_milli) == ("memory", 2048_000, None)
    text = queue_text(found, LAYOUT)
    assert "uses 6 of 8; its own quota is 4; borrows 2" in text
    assert "uses 3 GiB without a limit; its own quota is 2 GiB" in text


def test_terabytes_of_memory_are_told_too():
    found = explain_queue(greedy_plan(snapshot(queues=[queue("q", memory="9Ti")]), CALM), "q")

    assert found.quotas[1].limit_milli == 9 * 1024**2 * 1000


def test_a_guarantee_that_is_missed_says_by_how_much_and_for_what_its_jobs_wait():
    full = [old("x", *range(8), queue="r"), old("y", *range(8), node="n1", queue="r")]
    world = snapshot(queues=[queue("q", nominal=4, guarantee=3), queue("r")], jobs=[*full, job("a", gpus=2)])

    found = explain_queue(greedy_plan(world, CALM), "q")

    assert (found.quotas[0].guarantee_milli, found.quotas[0].missing_milli) == (3000, 2000)
    assert "Resources" in found.guarantee_note


def test_waiting_jobs_by_reason_those_of_queues_below_included():
    waiting = [
        job("a", gpus=1, gpu_models={"T4": 1}),
        job("b", gpus=1, held=True),
        job("h", gpus=2, held=True),
    ]
    world = snapshot(queues=tree(), jobs=[*waiting, job("c", gpus=1)])

    found = explain_queue(greedy_plan(world, CALM), "all")

    assert [(each.code, each.jobs, each.gpu_milli) for each in found.waiting] == [
        (ReasonCode.HELD, 2, 3000),
        (ReasonCode.NO_MATCHING_NODE, 1, 1000),
    ]
    assert (found.running, found.started) == (1, 1)


def test_which_jobs_may_be_reclaimed_and_which_queue_owes():
    queues = [queue("q", nominal=4), queue("r")]
    world = snapshot(queues=queues, jobs=[old("big", *range(8), queue="r"), old("own", 0, node="n1")])
    plan = greedy_plan(world, Policy())

    lender, borrower = explain_queue(plan, "q"), explain_queue(plan, "r")

    assert [each.job for each in lender.reclaimable] == ["big"]
    assert not lender.may_be_reclaimed
    assert borrower.may_be_reclaimed
    assert borrower.reclaimable == ()


def test_a_queue_owes_what_it_borrows_once_the_plan_is_carried_out():
    """A job of a queue without a quota leaves for the owner of one; a job of another queue comes."""
    queues = [queue("q", nominal=8), queue("r"), queue("new")]
    jobs = [
        old("gone", *range(8), queue="r"),
        job("owner", gpus=8, queue="q"),
        job("comes", gpus=1, queue="new", node_selector={"x": "y"}),
    ]
    world = snapshot(nodes=[node("n0"), node("n1", gpus=1, labels={"x": "y"})], queues=queues, jobs=jobs)
    plan = greedy_plan(world, Policy())
    assert {placed.job for placed in plan.placements} == {"owner", "comes"}

    assert not explain_queue(plan, "r").may_be_reclaimed
    assert explain_queue(plan, "new").may_be_reclaimed


@pytest.mark.parametrize(("nominal", "owes"), [(0, False), (1, True)])
def test_a_queue_owes_nothing_where_no_other_queue_has_a_quota(nominal, owes):
    """As on Slurm: queues without a right to GPUs borrow all that they hold."""
    queues = [queue("all"), queue("low", nominal=0), queue("high", nominal=nominal)]
    world = snapshot(queues=queues, jobs=[old("a", 0, queue="low")])

    assert explain_queue(greedy_plan(world, Policy()), "low").may_be_reclaimed is owes


def test_no_job_is_reclaimed_that_was_stopped_so_often_before():
    queues = [queue("q", nominal=4), queue("r")]
    running = [old("big", *range(4), queue="r"), old("often", *range(4, 8), queue="r", preemptions=1)]
    plan = greedy_plan(
        snapshot(queues=queues, jobs=running), Policy(disruption=Disruption(max_preemptions=1))
    )

    assert [each.job for each in explain_queue(plan, "q").reclaimable] == ["big"]


def test_the_job_that_would_start_with_one_gpu_of_quota_more():
    queues = [queue("q", nominal=1)]
    waiting = [job("a", gpus=1), job("worthier", gpus=1, priority=2), job("large", gpus=2, priority=9)]
    world = snapshot(queues=queues, jobs=[old("r", 0), *waiting])

    found = explain_queue(greedy_plan(world, CALM), "q")

    assert (found.one_more, found.one_more_points) == ("worthier", 300)
    assert "would start worthier, for +300 points" in queue_text(found, LAYOUT)


def said_of_one_more(waiting, nominal=1):
    world = snapshot(queues=[queue("q", nominal=nominal)], jobs=[old("r", 0), *waiting])
    found = explain_queue(greedy_plan(world, CALM), "q")
    wide = Style(width=120, ascii_only=True)
    return found, [line for line in queue_text(found, wide).splitlines() if "1 GPU more" in line]


def test_how_many_were_tried_where_one_gpu_more_starts_no_job():
    one, one_said = said_of_one_more([job("a", gpus=4)])
    many, many_said = said_of_one_more([job(f"j{number}", gpus=4) for number in range(31)])

    assert (one.one_more, one.one_more_tried) == (None, 1)
    assert one_said == ["  1 GPU more    of quota would not start the job that waits for it"]
    assert many.one_more_tried == 30
    assert many_said == [
        "  1 GPU more    of quota would start none of the 30 worthiest jobs that wait for it"
    ]


def test_nothing_is_said_of_one_gpu_more_where_none_was_tried():
    held = [job("a", gpus=1, held=True)]
    below_a_limit = [queue("all", nominal=1), queue("q", parent="all")]
    world = snapshot(queues=below_a_limit, jobs=[old("r", 0), job("a", gpus=1)])

    unlimited = explain_queue(greedy_plan(world, CALM), "q")

    assert said_of_one_more(held)[1] == []
    assert unlimited.one_more_tried == 0
    assert "1 GPU more" not in queue_text(unlimited, LAYOUT)
