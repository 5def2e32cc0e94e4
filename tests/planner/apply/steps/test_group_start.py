"""Jobs of one group start in two phases: all are reserved, then all run, or none does."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import PartlyAppliedError, PlannerError
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.executors.interface import ActionPhase, ExecutionError
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.io.file_lock import LockedError
from tests.support.builders.build import placement, replica
from tests.support.doubles.lasting_cluster import LastingCluster, VirtualClock
from tests.support.doubles.wrapped_cluster import Wrapped
from tests.support.samples.apply_world import carry_out, recorded, steal
from tests.support.samples.group_world import GROUPS, HELD, WORLD, group_plan, running


class Watched(Wrapped):
    """The cluster, noting the order of calls."""

    def __init__(self, inner):
        super().__init__(inner)
        self.calls = []

    def reserve(self, action, key):
        self.calls.append(("reserve", action.job))
        return self.inner.reserve(action, key)

    def begin(self, action, key):
        self.calls.append(("begin", action.job))
        return self.inner.begin(action, key)


@pytest.fixture
def log(tmp_path):
    return AuditLog(tmp_path / "audit.jsonl")


@pytest.fixture
def live(tmp_path):
    with SimulatedCluster.create(tmp_path / "cluster.db", WORLD) as cluster:
        yield cluster


def lasting(live, *, lasts=lambda _: 0.0, trouble=lambda *_: ""):
    return LastingCluster(live, VirtualClock(), lasts, trouble)


def test_all_of_a_group_are_reserved_before_the_first_begins(live, log):
    watched = Watched(live)

    carry_out(watched, log, plan=group_plan())

    assert running(live) == HELD.keys()
    for jobs in GROUPS.values():
        own = [call for call in watched.calls if call[1] in jobs]
        assert own == [("reserve", name) for name in jobs] + [("begin", name) for name in jobs]
    assert ("reserve", "alone") not in watched.calls


def test_a_group_begins_once_there_is_room_for_all_of_it(live, log):
    cluster = lasting(live, lasts=lambda _: 5.0)

    carry_out(cluster, log, plan=group_plan(parallel=2), clock=cluster.clock)

    assert running(live) == HELD.keys()
    assert cluster.most_at_once == 3  # the group of three, alone


def test_none_of_a_group_starts_if_a_node_fails_between_the_phases(live, log):
    def failing(call, name):
        if (call, name) == ("begin", "start/g-a"):
            live.fail_node("n1")
        return ""

    cluster = lasting(live, trouble=failing)

    with pytest.raises(PartlyAppliedError) as stopped:
        carry_out(cluster, log, plan=group_plan(on_failure="continue"), clock=cluster.clock)

    assert running(live) == {"alone"}
    failed = {failure.action: failure.reason for failure in stopped.value.outcome.failures}
    assert failed.keys() == {f"start/{name}" for names in GROUPS.values() for name in names}
    assert failed["start/g-c"] == (
        "its group starts together or not at all; job g-b cannot start: node n1: node is not ready."
    )


def test_a_member_that_is_refused_takes_the_reservations_of_the_others_back(live, log):
    def refusing(call, name):
        if (call, name) == ("reserve", "start/g-c"):
            raise PlannerError("its node burns.")
        return ""

    cluster = lasting(live, trouble=refusing)

    with pytest.raises(PartlyAppliedError, match=r"job g-c: its node\s+burns"):
        carry_out(cluster, log, plan=group_plan(on_failure="continue"), clock=cluster.clock)

    assert running(live) == {*GROUPS["h"], "alone"}
    steal(live, placement("thief", HELD["g-a"]))
    assert running(live) == {*GROUPS["h"], "alone", "thief"}


@pytest.mark.parametrize("taken", ["reserve", "begin", "abort"])
def test_an_apply_ends_if_another_takes_the_cluster_over_during_the_start_of_a_group(live, log, taken):
    calls = []

    def taking_over(call, name):
        calls.append(call)
        if call == taken and name.endswith("start/g-b"):
            raise LockedError("the lock of this process was taken over.")
        if (call, name) == ("begin", "start/g-c"):
            raise PlannerError("its node burns.")
        return ""

    cluster = lasting(live, trouble=taking_over)

    with pytest.raises(LockedError):
        carry_out(cluster, log, plan=group_plan(on_failure="continue"), clock=cluster.clock)

    assert calls[-1] == taken


def test_members_that_run_are_stopped_again_if_one_does_not_start_in_time(live, log):
    cluster = lasting(live, lasts=lambda action: 300.0 if getattr(action, "job", "") == "g-b" else 2.0)

    with pytest.raises(PartlyAppliedError) as stopped:
        carry_out(cluster, log, plan=group_plan(on_failure="continue"), clock=cluster.clock)

    assert running(live) == {*GROUPS["h"], "alone"}
    reasons = {failure.reason for failure in stopped.value.outcome.failures}
    assert reasons == {
        "its group starts together or not at all; job g-b: it does not run after 30s: it lasts"
    }
    assert 30 <= cluster.clock.seconds < 60
    waits = live.snapshot().job_by_name
    assert all(waits[name] == WORLD.job_by_name[name] for name in GROUPS["g"])
    outcomes = {record.action: record.outcome for record in log.records() if record.outcome}
    assert {outcomes[f"start/{name}"].value for name in GROUPS["g"]} == {"failed"}


def test_the_time_is_the_policys(live, log):
    cluster = lasting(live, lasts=lambda action: 300.0 if getattr(action, "job", "") == "g-b" else 2.0)

    carry_out(cluster, log, plan=group_plan(group_timeout="6m"), clock=cluster.clock)

    assert running(live) == HELD.keys()


def test_a_reason_that_may_pass_is_tried_again_for_the_whole_group(live, log):
    troubles = iter(["it is busy"])
    cluster = lasting(
        live,
        trouble=lambda call, name: next(troubles, "") if (call, name) == ("begin", "start/g-b") else "",
    )

    carry_out(cluster, log, plan=group_plan(), clock=cluster.clock)

    assert running(live) == HELD.keys()
    intents = [action for kind, action in recorded(log) if kind == "intent"]
    assert all(intents.count(f"start/{name}") == 2 for name in GROUPS["g"])
    assert intents.count("start/h-a") == 1


# --- reservations of the simulated cluster -----------------------------------------------------------------


def start_of(plan, job):
    return next(action for action in plan.actions if action.id == f"start/{job}")


def test_what_is_reserved_is_taken_from_no_one_else_of_the_plan(live):
    plan = group_plan()
    live.reserve(start_of(plan, "g-a"), "p:start/g-a")
    rival = start_of(plan, "h-a").model_copy(update={"after": placement("h-a", replica("n0", gpus=[0, 1]))})

    with pytest.raises(ExecutionError, match="GPU 0"):
        live.begin(rival, "p:start/h-a")

    assert live.observe(["p:start/g-a"])["p:start/g-a"].phase is ActionPhase.RESERVED
    assert live.snapshot() == WORLD


def test_reservations_of_a_plan_that_was_left_give_way_to_the_next_plan(live):
    plan = group_plan()
    live.reserve(start_of(plan, "g-a"), "p:start/g-a")
    rival = start_of(plan, "h-a").model_copy(update={"after": placement("h-a", replica("n0", gpus=[0, 1]))})

    live.begin(rival, "q:start/h-a")

    assert running(live) == {"old", "h-a"}
    assert live.observe(["p:start/g-a"])["p:start/g-a"].phase is ActionPhase.NOT_BEGUN


def test_a_start_that_is_taken_back_leaves_no_trace(live):
    plan = group_plan()
    action, key = start_of(plan, "g-a"), "p:start/g-a"
    live.reserve(action, key)
    live.begin(action, key)
    live.begin(action, key)

    live.abort(key, "why")
    live.abort(key, "why")

    assert live.snapshot() == WORLD
    assert live.observe([key])[key].phase is ActionPhase.NOT_BEGUN


def test_a_node_that_fails_between_the_phases_refuses_the_start(live):
    action, key = start_of(group_plan(), "g-a"), "p:start/g-a"
    live.reserve(action, key)

    assert live.fail_node("n0") == ()

    with pytest.raises(ExecutionError, match="n0"):
        live.begin(action, key)
    live.abort(key, "why")
    assert live.snapshot().job_by_name["g-a"] == WORLD.job_by_name["g-a"]
