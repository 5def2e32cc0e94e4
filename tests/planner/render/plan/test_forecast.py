"""Later slots on the screen and on the page: projections, changed promises, deadlines, the timeline."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from gpuplan.models.dependency import Dependency
from gpuplan.models.plan.solution import LaterStart
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.diff.diff import diff
from gpuplan.planner.render.plan.diff import diff_text
from gpuplan.planner.render.plan.text import plan_text
from gpuplan.planner.render.reports.plan import timeline_chart
from gpuplan.planner.render.style import Style
from gpuplan.planner.text_format import format_time
from tests.support.builders.build import NOW, cluster, placement, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.output.golden import golden_section
from tests.support.output.html_pages import page
from tests.support.samples.horizon_plans import (
    WORLD,
    at,
    looking_ahead,
    promise,
    running,
    timely_plan,
    waiting,
    whole,
)

TEXTS = Path(__file__).with_name("texts.golden.txt")


def text(plan, *, width=80, ascii_only=False, verbose=False, path="plan.json"):
    return plan_text(plan, Style(width=width, ascii_only=ascii_only), verbose=verbose, path=path)


def shown(golden):
    return dedent(golden).removeprefix("\n")


def section(title, found):
    """The lines of one section below its title."""
    start = found.index(f"{title}\n")
    return found[start:].split("\n\n")[0].split("\n")[1:]


def test_a_plan_that_looks_ahead_at_eighty_columns():
    found = text(timely_plan())

    assert found == golden_section(TEXTS, "a plan that looks ahead", found)


def test_every_line_fits_and_is_ascii_where_asked():
    found = text(timely_plan(), ascii_only=True)

    assert found.isascii()
    assert max(map(len, found.splitlines())) <= 80


def test_a_critical_deadline_is_at_risk_and_one_that_is_met_is_not():
    jobs = [waiting("near", gpus=8, hours=4, deadline=at(5)), waiting("far", gpus=8, deadline=at(11))]
    planned = [LaterStart("near", 1, whole("n0")), LaterStart("far", 1, whole("n1"))]

    found = text(drafted(snapshot(jobs=jobs), policy=looking_ahead(), planned=planned))

    assert section("Deadlines at risk", found) == ["  critical  near  due 17:00  done 17:00"]


@pytest.mark.parametrize(
    ("slot", "promised", "line"),
    [
        (1, True, "  earlier  a  14:00 → 13:00"),
        (3, True, "  later  a  14:00 → 15:00  other promises"),
        (3, False, "  withdrawn  a  14:00 → foreseen 15:00  other promises"),
    ],
)
def test_each_change_of_a_promise(slot, promised, line):
    world = snapshot(jobs=[waiting("a", gpus=8, promise=promise(2, *whole("n0")))])
    planned = [LaterStart("a", slot, whole("n0"), promised=promised)]

    found = text(drafted(world, policy=looking_ahead(), planned=planned))

    assert section("Promises changed", found) == [line]


def test_a_promise_that_is_kept_is_no_change():
    world = snapshot(jobs=[waiting("a", gpus=8, promise=promise(2, *whole("n0")))])

    found = text(drafted(world, policy=looking_ahead(), planned=[LaterStart("a", 2, whole("n0"))]))

    assert "Promises changed" not in found
    assert "starts 14:00 (promised)" in found


def test_without_a_horizon_and_promises_nothing_of_time_is_shown():
    found = text(drafted(snapshot(jobs=[waiting("a", gpus=8, deadline=at(1))])))

    assert not any(word in found for word in ("horizon", "Promises", "Deadlines", "starts 1"))


def test_promises_alone_are_something_to_apply():
    world = snapshot(jobs=[waiting("a", gpus=8)])
    planned = [LaterStart("a", 2, whole("n0"))]

    assert "Next: gpuplan apply" in text(drafted(world, policy=looking_ahead(), planned=planned))
    assert "Next: gpuplan apply" not in text(drafted(world, policy=Policy()))


def test_many_later_starts_are_told_by_their_time():
    nodes = cluster(30)
    jobs = [waiting(f"j{index:02d}", gpus=8) for index in range(30)]
    planned = [
        LaterStart(f"j{index:02d}", 1 + index // 20, whole(f"n{index}"), promised=index != 29)
        for index in range(30)
    ]

    found = text(drafted(snapshot(nodes=nodes, jobs=jobs), policy=looking_ahead(), planned=planned))

    assert section("Later starts", found) == [
        "  13:00  promised  20 jobs  160 GPUs  j00, j01 and 18 more",
        "  14:00  promised  9 jobs   72 GPUs   j20, j21 and 7 more",
        "  14:00  foreseen  1 job    8 GPUs    j29",
    ]
    assert "Later starts" not in text(
        drafted(snapshot(nodes=nodes, jobs=jobs), policy=looking_ahead(), planned=planned), verbose=True
    )


def test_few_jobs_with_long_reasons_are_told_their_starts_all_the_same():
    jobs = [
        waiting(f"j{index:02d}", gpus=8, depends_on=(Dependency(job=name),))
        for index, name in enumerate(["a-job-with-a-long-name-" + "x" * 30] * 15)
    ]
    first = waiting(jobs[0].depends_on[0].job, gpus=8)
    planned = [LaterStart(each.name, 2, whole(f"n{index}")) for index, each in enumerate(jobs)]
    world = snapshot(nodes=cluster(20), jobs=[first, *jobs])

    found = text(
        drafted(world, policy=looking_ahead(), planned=[*planned, LaterStart(first.name, 1, whole("n19"))])
    )

    assert "Grouped by reason" in found
    assert "  14:00  promised  15 jobs  120 GPUs  j00, j01 and 13 more" in section("Later starts", found)


def test_what_the_reason_of_a_group_says_is_not_said_twice():
    group = [
        waiting("a", gpus=1, co_start="g", not_before=at(2)),
        waiting("b", gpus=1, co_start="g"),
    ]
    planned = [LaterStart(name, 2, (replica("n0", gpus=[index]),)) for index, name in enumerate("ab")]

    found = text(drafted(snapshot(jobs=group), policy=looking_ahead(), planned=planned), verbose=True)

    assert "starts 14:00 (promised); starts only together with a of group g" in found
    assert "waits for its group" not in found


def test_long_sections_say_how_to_see_the_rest():
    jobs = [waiting(f"j{index:02d}", gpus=8, hours=3, deadline=at(1)) for index in range(25)]

    found = text(drafted(snapshot(jobs=jobs), policy=looking_ahead()))

    assert section("Deadlines at risk", found)[-1] == "  … 6 more; each one: gpuplan show plan.json --all"


def test_the_clock_names_the_day_only_if_it_is_another():
    assert format_time(at(1), NOW) == "13:00"
    assert format_time(at(14), NOW) == "2026-11-21 02:00"
    assert format_time(NOW.replace(second=5), NOW) == "12:00:05"


class TestDiff:
    def shown(self, plan, live=None):
        found = diff(plan, live)
        return diff_text(found, Style(width=80), verbose=False, path="plan.json")

    def test_promises_before_and_after_at_eighty_columns(self):
        assert shown("""
            Promises (epoch 2026-11-20T12:00:00Z): 2 made, 1 later, 1 withdrawn
                         JOB        PROMISED  BY THE PLAN  QUEUE
              made       eval       none      13:00        batch
              withdrawn  late       14:00     none         batch
                         it cannot meet its hard deadline any more
              later      render     13:00     14:00        batch
                         train-a on h100-1 is expected to run until 14:00
              made       train-moe  none      14:00        research
            """) in self.shown(timely_plan())

    def test_a_newer_snapshot_shows_what_is_promised_there(self):
        kept = {
            "eval": promise(1, replica("h100-3", gpus=range(4))),
            "notebook": promise(5, *whole("h100-1")),
        }
        live = WORLD.model_copy(
            update={
                "jobs": tuple(
                    job.model_copy(update={"promise": kept.get(job.name, job.promise)}) for job in WORLD.jobs
                )
            }
        )

        found = {promise.job: promise for promise in diff(timely_plan(), live).promises}

        assert (found["eval"].before, found["eval"].after, found["eval"].live) == (None, at(1), at(1))
        assert (found["notebook"].change, found["notebook"].live) == ("kept", at(5))
        assert "SINCE" in self.shown(timely_plan(), live)

    @pytest.mark.parametrize(
        ("slot", "change"), [(1, "earlier"), (2, "kept"), (3, "later"), (None, "withdrawn"), (0, "started")]
    )
    def test_each_change(self, slot, change):
        world = snapshot(jobs=[waiting("a", gpus=8, promise=promise(2, *whole("n0")))])
        started = [placement("a", *whole("n0"))] if slot == 0 else []
        planned = [LaterStart("a", slot, whole("n0"))] if slot else []

        (found,) = diff(drafted(world, *started, policy=looking_ahead(), planned=planned)).promises

        assert (found.change, found.before) == (change, at(2))

    def test_a_plan_without_promises_has_no_word_of_them(self):
        document = diff(drafted(snapshot(jobs=[waiting("a", gpus=8)]))).model_dump(mode="json")

        assert "promises" not in document


class TestReport:
    def test_projections_promises_and_deadlines_are_on_the_page(self):
        found = page(timely_plan()).text

        assert "4 later starts 12 slots of 1h to 2026-11-21T00:00:00Z, 3 starts promised, 1 foreseen" in found
        assert "render 8 GPUs batch Resources starts 14:00 (promised), waits until train-b ends" in found
        assert "2 promises changed" in found
        assert "later render 13:00 → 14:00 batch train-a on h100-1 is expected to run until 14:00" in found
        assert "late render due 16:00 done 17:00 batch" in found
        assert "killed at 14:00 if it still runs" in found

    def test_a_plan_of_this_instant_has_no_timeline(self):
        found = page(drafted(snapshot(jobs=[waiting("a", gpus=8)]))).text

        assert not any(word in found for word in ("later start", "at risk", "changed Change"))

    def test_the_timeline_is_in_proportion_and_no_jobs_overlap_in_a_lane(self):
        found, _ = timeline_chart(timely_plan())
        spans = {(lane.node, span.job): span for lane in found.lanes for span in lane.spans}

        moe = spans["h100-1", "train-moe"]
        assert (moe.kind, moe.left, moe.width) == ("promised", 16.67, 50.0)
        assert spans["h100-1", "train-a"].kind == "running"
        assert spans["h100-4", "sweep"].kind == "started"
        assert spans["h100-3", "notebook"].kind == "foreseen"
        for lane in found.lanes:
            for one, other in zip(lane.spans, lane.spans[1:], strict=False):
                assert one.left + one.width <= other.left + 0.01

    def test_jobs_on_a_node_at_the_same_time_have_lanes_of_their_own(self):
        others = [running(f"r{index}", replica("n0", gpus=[index]), hours=2) for index in range(3)]
        world = snapshot(jobs=[waiting("a", gpus=4), *others])
        planned = [LaterStart("a", 1, (replica("n0", gpus=range(4, 8)),))]

        found, _ = timeline_chart(drafted(world, policy=looking_ahead(), planned=planned))

        assert [lane.node for lane in found.lanes] == ["n0", "", "", ""]

    def test_what_goes_on_after_the_horizon_ends_with_the_picture(self):
        world = snapshot(jobs=[waiting("a", gpus=8, hours=100)])

        found, _ = timeline_chart(
            drafted(world, policy=looking_ahead(4), planned=[LaterStart("a", 1, whole("n0"))])
        )

        assert (found.lanes[0].spans[0].left, found.lanes[0].spans[0].width) == (25.0, 75.0)
        assert [text for _, text in found.ticks] == ["13:00", "14:00", "15:00"]
