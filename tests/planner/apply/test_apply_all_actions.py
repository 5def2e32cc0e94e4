"""Apply of changes of every kind: where they lead, where they stop, and what the log tells of them."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import PartlyAppliedError, PlannerError, StalePlanError
from gpuplan.models.plan.audit import AuditKind
from gpuplan.models.policy.policy import Drift, PoolPolicy
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import cluster, job, placement, replica, snapshot
from tests.support.samples import apply_world
from tests.support.samples.all_actions import (
    AFTER,
    CHANGES,
    CLOUD,
    MOVING,
    PLAN,
    WORLD,
    begin,
    grow,
    instance,
    mig_replica,
    migrate,
    plan_with,
    preempt,
    scale_down,
    scale_up,
)
from tests.support.samples.apply_world import stop_after

IDS = tuple(change.id for change in CHANGES)


@pytest.fixture
def live(tmp_path):
    with SimulatedCluster.create(tmp_path / "cluster.db", WORLD) as cluster_:
        yield cluster_


def carry_out(live, log, *, plan=PLAN, **more):
    return apply_world.carry_out(live, log, plan=plan, **more)


def by_others(live, *changes):
    """Changes are made in the cluster from outside."""
    with SimulatedCluster(live.path) as theirs:
        for change in changes:
            theirs.begin(change, f"theirs:{change.id}")


def finish(live, name):
    """A job ends by itself."""
    with SimulatedCluster(live.path) as theirs:
        theirs._db.execute("PRAGMA foreign_keys = ON")
        theirs._db.execute("DELETE FROM jobs WHERE name = ?", (name,))


def test_the_cluster_is_as_the_plan_says(live, log):
    outcome = carry_out(live, log)

    found = live.snapshot()
    assert outcome.done == IDS
    assert found.running_placements == AFTER
    nodes = found.cluster.node_by_name
    assert sorted(nodes) == ["cloud-1", "leaving", "mig0", "n0", "n1"]
    assert nodes["mig0"].gpus.by_index[0].mig == (instance("3g.40gb", 0), instance("2g.20gb", 4))
    assert {job_.name for job_ in found.jobs} == {job_.name for job_ in WORLD.jobs}


def test_the_records_tell_type_and_subject_of_each_change(live, log):
    carry_out(live, log)

    intents = [record for record in log.records() if record.kind is AuditKind.INTENT]
    outcomes = [record for record in log.records() if record.kind is AuditKind.OUTCOME]
    told = [(record.type, record.subject, record.detail) for record in intents]
    assert told == [
        ("cordon", "node old", "cordon old"),
        ("shrink", "job thin", "shrink thin from 3 to 1 replicas"),
        ("preempt", "job victim", "preempt victim on n0"),
        ("repartition", "node mig0 gpu 0", "repartition gpu 0 of mig0 into 3g.40gb at 0, 2g.20gb at 4"),
        ("migrate", "job mover", "migrate mover from old to n1"),
        ("migrate", "job guest", "migrate guest from leaving to n1"),
        ("drain", "node leaving", "drain leaving"),
        ("drain", "node old", "drain old"),
        ("scale_down", "node old", "remove old from pool cloud"),
        ("scale_up", "node cloud-1", "add cloud-1 to pool cloud"),
        ("start", "job urgent", "start urgent on n0"),
        ("start", "job infer", "start infer on mig0"),
        ("start", "job fresh", "start fresh on cloud-1"),
        ("grow", "job wide", "grow wide from 1 to 2 replicas"),
    ]
    assert [(record.type, record.subject) for record in outcomes] == [entry[:2] for entry in told]
    assert all(record.seen for record in intents)


INTERFERENCES = [
    (2, lambda live: finish(live, "victim"), "preempt/victim", "job victim cannot be preempted: expected a"),
    (
        3,
        lambda live: by_others(
            live, preempt(WORLD, "serving"), begin(WORLD, "serving", mig_replica("mig0", "3g.40gb", 4))
        ),
        "repartition/mig0/gpu0",
        "node mig0 cannot be repartitioned: expected MIG instances in use to stay on GPU 0",
    ),
    (
        4,
        lambda live: by_others(live, grow(WORLD, "wide", replica("n1", gpus=[4]))),
        "migrate/mover",
        "job mover cannot migrate: node n1: expected 1000 thousandths free of GPU 4, found 0",
    ),
    (
        5,
        lambda live: by_others(live, preempt(WORLD, "guest")),
        "migrate/guest",
        "job guest cannot migrate: expected it running, found it waiting",
    ),
    (
        8,
        lambda live: by_others(live, scale_down(CLOUD, "old")),
        "scale_down/old",
        "node old cannot be removed: expected a node, found no such node",
    ),
    (
        9,
        lambda live: by_others(live, scale_up(CLOUD, "cloud-1")),
        "scale_up/cloud-1",
        "node cloud-1 cannot be added: expected no node of this name, found one",
    ),
    (
        10,
        lambda live: by_others(live, begin(WORLD, "victim", replica("n0", gpus=[4, 5, 6, 7]))),
        "start/urgent",
        "job urgent cannot start: node n0: expected 1000 thousandths free of GPU 4, found 0",
    ),
    (13, lambda live: finish(live, "wide"), "grow/wide", "job wide cannot grow: expected a running job"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("done", "interfere", "failing", "why"), INTERFERENCES)
def test_a_change_that_fails_ends_the_run_and_says_what_is_done_and_what_is_not(
    live, log, done, interfere, failing, why
):
    def after(count, *_):
        if count == done:
            interfere(live)

    with pytest.raises(PartlyAppliedError) as caught:
        carry_out(live, log, on_progress=after)

    outcome = caught.value.outcome
    assert caught.value.exit_code == 22
    assert (outcome.done, outcome.failures[0].action, outcome.remaining) == (
        IDS[:done],
        failing,
        IDS[done + 1 :],
    )
    assert f"action {failing} failed: {why}" in str(caught.value)
    assert log.records()[-1].detail == f"failed: {done} of 14 done"


@pytest.mark.slow
@pytest.mark.parametrize("count", range(1, 14))
@pytest.mark.parametrize("mode", list(Drift))
def test_a_plan_stopped_anywhere_is_gone_on_with_to_the_same_end(live, log, count, mode):
    with pytest.raises(PartlyAppliedError):
        carry_out(live, log, stop=stop_after(count))
    live.advance(30)

    outcome = carry_out(live, log, resume=True, drift_mode=mode)

    assert (outcome.skipped, outcome.done) == (IDS[:count], IDS[count:])
    assert live.snapshot().running_placements == AFTER


def test_a_move_that_the_policy_forbids_makes_the_plan_stale(live, log):
    forbidden = MOVING.model_copy(
        update={"disruption": MOVING.disruption.model_copy(update={"migrate": False})}
    )

    with pytest.raises(StalePlanError, match="eviction: job mover"):
        carry_out(live, log, plan=plan_with(WORLD, *CHANGES, policy=forbidden, placements=AFTER))
    assert live.snapshot() == WORLD


@pytest.mark.parametrize("forbidden", ["scale_up", "scale_down"])
def test_nodes_that_the_policy_lets_be_make_the_plan_stale(live, log, forbidden):
    policy = MOVING.model_copy(update={"pools": PoolPolicy(**{forbidden: False})})

    with pytest.raises(StalePlanError, match="pools: "):
        carry_out(live, log, plan=plan_with(WORLD, *CHANGES, policy=policy, placements=AFTER))
    assert live.snapshot() == WORLD


def test_a_node_to_be_removed_that_was_cordoned_from_outside_makes_the_plan_stale(tmp_path, log):
    nodes = tuple(node_.model_copy(update={"cordoned": node_.name == "old"}) for node_ in WORLD.cluster.nodes)
    changed = WORLD.model_copy(update={"cluster": WORLD.cluster.model_copy(update={"nodes": nodes})})
    with (
        SimulatedCluster.create(tmp_path / "other.db", changed) as other,
        pytest.raises(StalePlanError, match="pools: node old"),
    ):
        carry_out(other, log, drift_mode=Drift.PRECONDITIONS)


def test_a_job_to_be_preempted_that_has_ended_is_no_harmless_change(live, log):
    finish(live, "victim")

    with pytest.raises(StalePlanError, match="job victim is gone") as caught:
        carry_out(live, log)
    assert "--drift preconditions" not in str(caught.value)
    with pytest.raises(StalePlanError, match="job victim is gone"):
        carry_out(live, log, drift_mode=Drift.PRECONDITIONS)


def test_a_release_that_stands_after_what_needs_it_is_refused(live, log):
    start, release = begin(WORLD, "urgent", replica("n0", gpus=range(8))), preempt(WORLD, "victim")
    late = start.model_copy(update={"after_actions": (release.id,)})

    with pytest.raises(PlannerError, match=r"start/urgent .* preempt/victim"):
        carry_out(live, log, plan=plan_with(WORLD, late, release))
    with pytest.raises(StalePlanError, match="node n0 has too little free"):
        carry_out(live, log, plan=plan_with(WORLD, start, release))
    assert live.snapshot() == WORLD


def test_jobs_that_change_places_in_turn_all_get_theirs(tmp_path, log):
    jobs = [
        job(name, gpus=4, at=[replica(where, gpus=gpus)])
        for name, where, gpus in (("a", "n0", range(4)), ("b", "n1", range(4)), ("c", "n1", range(4, 8)))
    ]
    world = snapshot(nodes=cluster(2), jobs=jobs)
    first = migrate(world, "a", replica("n0", gpus=range(4, 8)))
    second = migrate(world, "c", replica("n0", gpus=range(4)), once=[first.id])
    third = migrate(world, "b", replica("n1", gpus=range(4, 8)), once=[second.id])
    with SimulatedCluster.create(tmp_path / "turn.db", world) as live:
        carry_out(live, log, plan=plan_with(world, first, second, third))

        assert live.snapshot().running_placements == (
            placement("a", replica("n0", gpus=range(4, 8))),
            placement("b", replica("n1", gpus=range(4, 8))),
            placement("c", replica("n0", gpus=range(4))),
        )
