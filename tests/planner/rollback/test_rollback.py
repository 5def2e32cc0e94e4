"""What a rollback undoes of small plans made by hand, and what it tells to stay, and why."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.dependency import JobOutcome
from gpuplan.models.errors import PlannerError, StalePlanError
from gpuplan.models.plan.actions import changes_of
from gpuplan.models.plan.diff import PromiseChange
from gpuplan.models.plan.plan import PlannedStart
from gpuplan.models.plan.rollback import StaysCode
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import DisruptionBudget
from gpuplan.planner.apply.applied import applied_by_log, applied_on
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.diff.diff import promise_diffs
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.plan_file.plan_file import load_plan, save_plan, with_id
from gpuplan.planner.render.plan.forecast import promise_table
from gpuplan.planner.rollback.rollback import roll_back
from tests.support.builders.build import (
    NOW,
    by_value,
    cluster,
    job,
    node,
    placement,
    queue,
    replica,
    snapshot,
)
from tests.support.oracles.rollback_oracle import assert_legal
from tests.support.samples.all_actions import PLAN as ALL
from tests.support.samples.all_actions import begin, plan_with, preempt, scale_up, with_pools
from tests.support.samples.all_actions import pool as pool_of
from tests.support.samples.apply_world import carry_out, stop_after
from tests.support.samples.promise_plans import AHEAD, promise, promises_in

HELD = replica("n0", gpus=range(8))


def one_for_another(*, low=None, high=None, others=(), policy=None, **world):
    """A plan that stops `low` for `high` on the only node."""
    jobs = [
        job("low", gpus=8, at=[HELD], **(low or {})),
        job("high", gpus=8, priority=5, **(high or {})),
        *others,
    ]
    found = snapshot(nodes=cluster(1), jobs=jobs, **world)
    return plan_with(
        found,
        preempt(found, "low"),
        begin(found, "high", HELD, once=["preempt/low"]),
        placements=[placement("high", HELD)],
        policy=policy or by_value(),
    )


class Site:
    """A simulated cluster of a plan, with its log."""

    def __init__(self, live, log):
        self.live, self.log = live, log

    def apply(self, plan, **how):
        carry_out(self.live, self.log, plan=plan, **how)

    def back(self, plan, **how):
        made = roll_back(plan, applied_on(plan, self.live, self.log), created_at=NOW, **how)
        assert_legal(made)
        return made

    def running(self):
        return {each.job: sorted(each.nodes) for each in self.live.snapshot().running_placements}


@pytest.fixture
def site(tmp_path):
    """Make the cluster of a plan's snapshot and apply the plan, or a part of it."""
    opened = []

    def made(plan, **how):
        live = SimulatedCluster.create(tmp_path / "cluster.db", plan.snapshot)
        opened.append(live)
        found = Site(live, AuditLog(tmp_path / "audit.jsonl"))
        try:
            found.apply(plan, **how)
        except PlannerError:
            assert "stop" in how
        return found

    yield made
    for live in opened:
        live.close()


def ids(plan):
    return [change.id for change in changes_of(plan.actions)]


def told(plan):
    return {each.subject: each.code for each in plan.rollback.stays}


def test_a_preempted_job_gets_its_place_back_from_the_job_that_the_plan_started(site):
    plan = one_for_another()
    there = site(plan)

    back = there.back(plan)
    assert ids(back) == ["preempt/high", "start/low"]
    assert told(back).keys() <= {"job low"}
    there.apply(back)

    assert there.running() == {"low": ["n0"]}
    assert not there.back(plan).has_changes


def test_a_promise_that_the_plan_withdrew_does_not_come_back(site):
    """Its node does not suit the job any more, so a cluster with this promise would break a rule."""
    late = job("late", gpus=8, node_selector={"rack": "r9"}).model_copy(update={"promise": promise(1, HELD)})
    plan = one_for_another(others=[late], policy=AHEAD)
    there = site(plan)
    audited = applied_by_log(plan, there.live.snapshot(), there.log)

    assert (
        ids(there.back(plan))
        == ids(roll_back(plan, audited, created_at=NOW))
        == ["preempt/high", "start/low"]
    )


@pytest.mark.parametrize("left", [1, 3])
def test_a_promise_that_the_cluster_cannot_keep_any_more_is_left_out_and_told(site, left):
    """The job on its node runs for longer than expected; the other promise stays."""
    slow = job("slow", gpus=8, at=[replica("n1", gpus=range(8))], expected_duration=(1 + left) * 3600)
    late, other = (
        job(name, gpus=8, expected_duration="1h").model_copy(update={"promise": promise(hours, there)})
        for name, hours, there in (("late", 2, replica("n1", gpus=range(8))), ("other", 3, HELD))
    )
    short = {"expected_duration": "1h"}
    plan = one_for_another(low=short, high=short, policy=AHEAD)
    there = site(plan)
    world = there.live.snapshot()
    nodes = (*world.cluster.nodes, node("n1"))
    live = world.model_copy(
        update={
            "jobs": (*world.jobs, slow, late, other),
            "cluster": world.cluster.model_copy(update={"nodes": nodes}),
        }
    )

    back = roll_back(plan, applied_by_log(plan, live, there.log), created_at=NOW)

    assert_legal(back)
    assert ids(back) == ["preempt/high", "start/low"]
    assert {each.job for each in back.planned} == ({"other"} if left == 3 else {"late", "other"})
    assert told(back).get("job late") == (StaysCode.RULE if left == 3 else None)


@pytest.mark.parametrize("gone", [False, True])
def test_a_start_that_is_due_by_now_is_left_to_the_next_plan(site, gone):
    """Also if all jobs of the plan have ended; the promise is not told to be withdrawn, since it stays."""
    plan = one_for_another(policy=AHEAD)
    there = site(plan)
    world = there.live.snapshot()
    due = job("due", gpus=8).model_copy(update={"promise": promise(0, replica("n1", gpus=range(8)))})
    nodes = (*world.cluster.nodes, node("n1"))
    live = world.model_copy(
        update={
            "jobs": (due,) if gone else (*world.jobs, due),
            "cluster": world.cluster.model_copy(update={"nodes": nodes}),
        }
    )

    back = roll_back(plan, applied_by_log(plan, live, there.log), created_at=NOW)

    assert_legal(back)
    assert ids(back) == ([] if gone else ["preempt/high", "start/low"])
    assert not promise_table(back).rows
    assert {each.change for each in promise_diffs(back)} <= {PromiseChange.KEPT}


@pytest.mark.parametrize("cut", [False, True])
def test_a_promise_that_a_later_plan_withdrew_does_not_come_back(site, cut):
    """Nor if the first plan was cut before it recorded the promise that it kept."""
    kept = promise(1, HELD)
    late = job("late", gpus=8, priority=1).model_copy(update={"promise": kept} if cut else {})
    plan = one_for_another(others=[late], policy=AHEAD)
    planned = PlannedStart(job="late", slot=1, start=kept.start, replicas=kept.replicas, promised=True)
    plan = with_id(plan.model_copy(update={"planned": (planned,)}))
    there = site(plan, **({"stop": stop_after(2)} if cut else {}))
    assert set(promises_in(there.live)) == {"late"}
    later = plan_with(there.live.snapshot(), placements=[placement("high", HELD)], policy=by_value())
    there.apply(later)
    assert not promises_in(there.live)

    audited = applied_by_log(plan, there.live.snapshot(), there.log)
    for back in (there.back(plan), roll_back(plan, audited, created_at=NOW)):
        assert ids(back) == ["preempt/high", "start/low"]
        assert not [each for each in back.snapshot.jobs if each.promise]
        assert not back.planned


def test_a_rollback_survives_its_file(site, tmp_path):
    plan = one_for_another()
    back = site(plan).back(plan)
    save_plan(back, tmp_path / "back.json")

    assert load_plan(tmp_path / "back.json") == back


def test_a_rollback_is_undone_by_its_own_rollback(site):
    plan = one_for_another()
    there = site(plan)
    back = there.back(plan)
    there.apply(back)

    forth = there.back(back)
    there.apply(forth)

    assert ids(forth) == ["preempt/low", "start/high"]
    assert there.running() == {"high": ["n0"]}


def test_a_job_starts_again_though_a_job_of_the_plan_with_higher_priority_waits(site):
    plan = one_for_another()
    there = site(plan, stop=stop_after(1))
    assert there.running() == {}

    back = there.back(plan)

    assert ids(back) == ["start/low"]


def test_a_plan_that_was_never_applied_is_refused(site):
    plan = one_for_another()
    there = site(plan)

    with pytest.raises(PlannerError, match="was never applied here"):
        there.back(with_id(plan.model_copy(update={"seed": 7})))


def test_an_apply_that_did_nothing_leaves_nothing_to_undo(site):
    plan = one_for_another()
    there = site(plan, stop=lambda: True)

    back = there.back(plan)

    assert not back.has_changes
    assert back.rollback.done == 0


def test_jobs_that_the_plan_started_run_on_unless_told_otherwise(site):
    world = snapshot(jobs=[job("a", gpus=2), job("b", gpus=2)])
    places = [replica("n0", gpus=[0, 1]), replica("n0", gpus=[2, 3])]
    starts = [begin(world, "a", places[0]), begin(world, "b", places[1])]
    plan = plan_with(world, *starts, placements=[each.after for each in starts])
    there = site(plan)

    assert told(there.back(plan)) == {"job a": StaysCode.STARTED, "job b": StaysCode.STARTED}
    assert not there.back(plan).has_changes
    back = there.back(plan, stop_started=True)
    assert ids(back) == ["preempt/a", "preempt/b"]
    assert back.rollback.stays == ()
    of = f"plan {plan.plan_id[:8]} started it; ran 0s, loses no work"
    assert all(change.reason.text.startswith(of) for change in changes_of(back.actions))


def test_only_as_many_started_jobs_stop_as_a_quota_needs(site):
    """The old place is free, and the quota is used up by jobs of the plan elsewhere."""
    at = [replica("n0", gpus=range(4))]
    jobs = [job("old", gpus=4, at=at)] + [job(f"new{n}", gpus=2, priority=3 + n) for n in range(3)]
    world = snapshot(nodes=cluster(2), jobs=jobs, queues=[queue("q", nominal=6)])
    starts = [begin(world, f"new{n}", replica("n1", gpus=[2 * n, 2 * n + 1])) for n in range(3)]
    plan = plan_with(
        world, preempt(world, "old"), *starts, placements=[each.after for each in starts], policy=by_value()
    )
    there = site(plan)

    back = there.back(plan)

    # Six GPUs of quota: the four of `old` leave room for the most important of the three.
    assert ids(back) == ["preempt/new0", "preempt/new1", "start/old"]
    assert told(back)["job new2"] is StaysCode.STARTED


@pytest.mark.parametrize(
    ("how", "code"),
    [("ended", StaysCode.FINISHED), ("elsewhere", StaysCode.CHANGED), ("taken", StaysCode.TAKEN)],
)
def test_what_happened_since_is_told(site, how, code):
    world = snapshot(
        nodes=cluster(3),
        jobs=[job("low", gpus=8, at=[HELD]), job("next", gpus=8), job("high", gpus=1, priority=9)],
    )
    start = begin(world, "high", replica("n1", gpus=[0]))
    plan = plan_with(world, preempt(world, "low"), start, placements=[start.after], policy=by_value())
    there = site(plan)
    live = there.live.snapshot()
    if how == "ended":
        there.live.begin(begin(live, "low", HELD), "theirs:start")
        there.live.end_job("low", JobOutcome.SUCCEEDED)
    else:
        name, where = {"elsewhere": ("low", "n2"), "taken": ("next", "n0")}[how]
        there.live.begin(begin(live, name, replica(where, gpus=range(8))), "theirs:start")

    back = there.back(plan)

    assert told(back)["job low"] is code, back.rollback.stays
    assert not back.has_changes


def test_a_rule_that_forbids_it_is_named(site):
    budget = DisruptionBudget(name="all", max_unavailable=0)
    plan = one_for_another()
    there = site(plan)
    rules = by_value(disruption=Disruption(budgets=(budget,)))

    back = there.back(plan, policy=rules)

    (low,) = [each for each in back.rollback.stays if each.code is StaysCode.RULE]
    assert (low.subject, low.rule) == ("job low", Rule.DISRUPTION_BUDGET)
    assert not back.has_changes


def test_a_job_that_must_not_be_stopped_keeps_its_place(site):
    plan = one_for_another(high={"preemptible": False})
    there = site(plan)

    back = there.back(plan)

    (low,) = [each for each in back.rollback.stays if each.code is StaysCode.RULE]
    assert low.rule is Rule.EVICTION
    assert "it is not preemptible" in low.text


def test_a_third_job_of_higher_priority_goes_first(site):
    """The rule about priorities is lifted between jobs of the plan alone."""
    world = snapshot(
        nodes=cluster(1),
        jobs=[
            job("low", gpus=8, at=[HELD]),
            job("high", gpus=8, priority=5),
            job("third", gpus=8, priority=3),
        ],
    )
    start = begin(world, "high", HELD, once=["preempt/low"])
    plan = plan_with(world, preempt(world, "low"), start, placements=[start.after], policy=by_value())
    there = site(plan, stop=stop_after(1))

    back = there.back(plan)

    (low,) = [each for each in back.rollback.stays if each.code is StaysCode.RULE]
    assert low.rule is Rule.PRIORITY
    assert "third" in low.text


def test_a_co_start_group_goes_back_as_a_whole_or_not_at_all(site):
    at = {"x": [replica("n0", gpus=range(4))], "y": [replica("n0", gpus=range(4, 8))]}
    jobs = [job(name, gpus=4, at=held, co_start="xy") for name, held in at.items()]
    world = snapshot(nodes=cluster(1), jobs=[*jobs, job("late", gpus=4)])
    plan = plan_with(world, preempt(world, "x"), preempt(world, "y"), placements=[], policy=by_value())
    there = site(plan)
    assert ids(there.back(plan)) == ["start/x", "start/y"]

    there.live.begin(begin(there.live.snapshot(), "late", *at["y"]), "theirs:late")
    back = there.back(plan)

    assert not back.has_changes
    assert told(back) == {"job x": StaysCode.TAKEN, "job y": StaysCode.TAKEN}


def test_a_node_that_the_plan_added_goes_once_it_is_empty(site):
    cloud = pool_of()
    world = with_pools(snapshot(nodes=cluster(1), jobs=[job("a", gpus=8)]), cloud)
    start = begin(world, "a", replica("cloud-1", gpus=range(8)), once=["scale_up/cloud-1"])
    plan = plan_with(world, scale_up(cloud, "cloud-1"), start, placements=[start.after])
    there = site(plan)
    assert told(there.back(plan)) == {"node cloud-1": StaysCode.IN_USE, "job a": StaysCode.STARTED}

    there.live.advance(600)
    stopping = there.back(plan, stop_started=True)
    assert ids(stopping) == ["preempt/a"]
    assert [each.rule for each in stopping.rollback.stays] == [Rule.POOLS]
    there.apply(stopping)
    there.apply(emptying := there.back(plan))

    assert ids(emptying) == ["scale_down/cloud-1"]
    assert there.live.snapshot().cluster.node_by_name.keys() == {"n0"}


def test_a_log_and_a_snapshot_tell_the_same_as_the_cluster(site):
    there = site(ALL, stop=stop_after(6))

    by_log = roll_back(ALL, applied_by_log(ALL, there.live.snapshot(), there.log), created_at=NOW)

    assert by_log.plan_id == there.back(ALL).plan_id
    assert by_log.has_changes


def test_a_snapshot_of_another_cluster_is_refused(site):
    there = site(ALL)
    with pytest.raises(StalePlanError, match="is for another cluster"):
        applied_by_log(ALL, snapshot(nodes=[node("other")]), there.log)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["slurm/node", "gpuplan/local"])
@pytest.mark.parametrize("seconds", [-1, 0])
def test_a_snapshot_from_before_the_apply_is_refused_where_the_clock_is_that_of_the_log(site, label, seconds):
    """In it all would seem to be undone."""
    there = site(ALL)
    live = there.live.snapshot()
    ended = max(record.at for record in there.log.records())
    nodes = [each.model_copy(update={"labels": {label: each.name}}) for each in live.cluster.nodes]
    world = live.cluster.model_copy(update={"nodes": tuple(nodes)})
    live = live.model_copy(update={"cluster": world, "taken_at": ended + timedelta(seconds=seconds)})

    if seconds < 0:
        with pytest.raises(StalePlanError, match=f"before plan {ALL.plan_id} was applied to the end, at "):
            applied_by_log(ALL, live, there.log)
    else:
        assert applied_by_log(ALL, live, there.log).done


def test_without_a_log_nothing_is_rolled_back(site, tmp_path):
    there = site(ALL)
    with pytest.raises(PlannerError, match=r"no audit log is at .*nothing\.jsonl"):
        applied_on(ALL, there.live, AuditLog(tmp_path / "nothing.jsonl"))
