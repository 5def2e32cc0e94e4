"""The whole loop on a real Slurm: read, plan, apply, and what breaks on the way."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.plan.actions import changes_of
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.apply.apply import apply_plan, check_plan
from gpuplan.planner.apply.audit_log import AuditLog, verify_log
from gpuplan.planner.apply.outcome import ApplyHooks, InterruptedApplyError
from gpuplan.planner.apply.standing import key_of
from gpuplan.planner.doctor import check_slurm
from gpuplan.planner.executors.interface import ActionPhase, ExecutionError
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.executors.slurm.cluster import SlurmCluster
from gpuplan.planner.io.file_lock import LockedError
from gpuplan.planner.plan_file.plan_file import save_plan
from tests.support.builders.build import NOW
from tests.support.harness.private_slurm import CLOUD, NODES
from tests.support.harness.slurm_kills import apply_in_child, killing_scontrol, kills
from tests.support.harness.slurm_plans import (
    EVERYTHING,
    GANG,
    WHOLE_NODE,
    applied,
    kinds,
    nodes_of,
    planned,
    planned_nodes,
)

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

COMMANDS = 16
"""Changing commands of one preemption and one start, and of two locks: of the check and of the apply."""
COUNTS_SIGNALS = 'trap "echo signal >> {log}" USR1; while true; do sleep 0.2; done'


def test_a_gang_runs_on_exactly_the_planned_nodes(slurm, tmp_path):
    gang, single = slurm.submit(*GANG), slurm.submit(*WHOLE_NODE)
    cluster = SlurmCluster()
    plan = planned(cluster)
    assert kinds(plan) == [f"start/{gang}", f"start/{single}"]
    outcome = applied(plan, cluster, tmp_path)
    assert sorted(outcome.done) == kinds(plan)
    assert nodes_of(cluster) == planned_nodes(plan)


def test_a_plan_ends_in_the_same_state_on_slurm_and_on_the_simulated_cluster(slurm, tmp_path):
    for _ in range(2):
        slurm.submit(*GANG)
    first = SlurmCluster()
    applied(planned(first), first, tmp_path)
    slurm.submit(*EVERYTHING)
    slurm.submit(*WHOLE_NODE)
    cluster = SlurmCluster()
    plan = planned(cluster)
    assert {change.type for change in changes_of(plan.actions)} == {"preempt", "start"}
    with SimulatedCluster.create(tmp_path / "simulated.db", plan.snapshot) as simulated:
        apply_plan(plan, simulated, AuditLog(tmp_path / "other.jsonl"), actor="test", now=lambda: NOW)
        there = nodes_of(simulated)
    applied(plan, cluster, tmp_path)
    assert nodes_of(cluster) == there
    assert {job.name for job in cluster.snapshot().jobs} == {job.name for job in plan.snapshot.jobs}


def test_a_preempted_job_has_the_time_it_asked_for_and_runs_again_elsewhere(slurm, tmp_path):
    log = tmp_path / "signals"
    victim = slurm.submit(
        *WHOLE_NODE, comment="gpuplan signal=B:USR1@4", script=COUNTS_SIGNALS.format(log=log)
    )
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    slurm.wait_until(lambda: _started(slurm, victim), "the script runs")
    large = slurm.submit(*EVERYTHING)
    plan = planned(cluster)
    assert kinds(plan) == [f"preempt/{victim}", f"start/{large}"]
    began = time.monotonic()
    applied(plan, cluster, tmp_path)
    assert time.monotonic() - began >= 4
    assert log.read_text() == "signal\n"
    assert slurm.states()[large][0] == "RUNNING"
    assert slurm.states()[victim] == ("PENDING", "")
    slurm.command("scancel", large)
    slurm.wait_until(lambda: large not in slurm.states(), f"{large} is over")
    slurm.command("scontrol", "update", "NodeName=gpu01", "State=DRAIN", "Reason=test")
    again = planned(cluster)
    assert kinds(again) == [f"start/{victim}"]
    applied(again, cluster, tmp_path)
    state, node = slurm.states()[victim]
    assert state == "RUNNING"
    assert node != "gpu01"


def _started(slurm, job):
    return "BatchHost=gpu" in slurm.command("scontrol", "show", "job", job)


def test_a_migrated_job_runs_on_its_new_node(slurm, tmp_path):
    cluster = SlurmCluster()
    for drained in ("gpu01", "gpu02"):
        slurm.submit("-N1", "--gpus-per-node=h100:4")
        applied(planned(cluster), cluster, tmp_path)
        slurm.command("scontrol", "update", f"NodeName={drained}", "State=DRAIN", "Reason=test")
    for drained in ("gpu01", "gpu02"):
        slurm.command("scontrol", "update", f"NodeName={drained}", "State=RESUME")
    slurm.wait_until(lambda: "not_responding" not in str(slurm.node_states()["gpu01"]), "nodes answer")
    wide = slurm.submit("-N3", "--ntasks-per-node=1", "--gpus-per-node=h100:8", "-p", "high")
    plan = planned(cluster, disruption={"migrate": True}, solvers=Policy().solvers)
    assert sorted({change.type for change in changes_of(plan.actions)}) == ["migrate", "start"]
    applied(plan, cluster, tmp_path)
    assert nodes_of(cluster) == planned_nodes(plan)
    assert slurm.states()[wide][0] == "RUNNING"


def test_a_job_that_its_user_requeued_starts_where_the_plan_says(slurm, tmp_path):
    ours = slurm.submit(*WHOLE_NODE)
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    (node,) = nodes_of(cluster)[ours]
    slurm.command("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    slurm.command("scontrol", "requeue", ours)
    slurm.wait_until(lambda: slurm.states()[ours][0] == "PENDING", f"{ours} waits")
    # It is not held, and still requires the node of its first start.
    slurm.command("scontrol", "update", f"JobId={ours}", "StartTime=now")
    plan = planned(cluster)
    applied(plan, cluster, tmp_path)
    assert nodes_of(cluster) == planned_nodes(plan)
    assert nodes_of(cluster)[ours] != {node}


def test_a_fence_that_a_killed_apply_left_keeps_no_later_plan_away(slurm, tmp_path):
    fence = ("Users=root", "StartTime=now", "Duration=15", "Flags=IGNORE_JOBS,FLEX,OVERLAP")
    slurm.command(
        "scontrol", "create", "reservation", "ReservationName=gpuplan-old", "Nodes=gpu[01-04]", *fence
    )
    left = slurm.submit(*WHOLE_NODE)
    slurm.command("scontrol", "update", f"JobId={left}", "ReservationName=gpuplan-old")
    cluster = SlurmCluster()
    plan = planned(cluster)
    assert kinds(plan) == [f"start/{left}"]
    applied(plan, cluster, tmp_path)
    assert nodes_of(cluster) == planned_nodes(plan)
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")


def test_a_check_leaves_the_fence_of_a_killed_apply(slurm, tmp_path):
    victim = slurm.submit(*EVERYTHING, "-p", "low")
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    large = slurm.submit(*EVERYTHING)
    plan = planned(cluster)
    stop = next(change for change in changes_of(plan.actions) if change.type == "preempt")
    key = key_of(plan, stop)
    cluster.begin(stop, key)
    slurm.wait_until(lambda: cluster.observe([key])[key].phase is ActionPhase.LANDED, "it is stopped")
    resumed = SlurmCluster()
    audit = AuditLog(tmp_path / "lost.jsonl")
    with pytest.raises(PlannerError, match="in part"):
        check_plan(plan, resumed, audit, resume=False)
    check_plan(plan, resumed, audit, resume=True)
    assert "gpuplan-" in slurm.command("scontrol", "show", "reservation")
    apply_plan(plan, resumed, audit, actor="test", now=lambda: NOW, resume=True)
    assert slurm.states()[large][0] == "RUNNING"
    assert slurm.states()[victim][0] == "PENDING"
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")


def test_foreign_jobs_count_and_are_not_touched(slurm, tmp_path):
    running = slurm.submit(*WHOLE_NODE, comment="mine")
    slurm.command("scontrol", "release", running)
    slurm.wait_running(running)
    waiting = slurm.submit(*WHOLE_NODE, comment="not gpuplan's")
    large = slurm.submit(*EVERYTHING)
    cluster = SlurmCluster()
    plan = planned(cluster)
    assert kinds(plan) == []
    slurm.command("scancel", large)
    before = slurm.command("scontrol", "--oneliner", "show", "job", waiting)
    ours = slurm.submit(*WHOLE_NODE)
    plan = planned(cluster)
    assert kinds(plan) == [f"start/{ours}"]
    applied(plan, cluster, tmp_path)
    assert slurm.states()[running][0] == "RUNNING"
    assert slurm.command("scontrol", "--oneliner", "show", "job", waiting) == before


def test_nothing_that_slurm_starts_by_itself_gets_what_a_preemption_frees(slurm, tmp_path):
    victims = [
        slurm.submit(*WHOLE_NODE, comment="gpuplan signal=USR1@2", script="trap '' USR1; sleep 1000")
        for _ in NODES
    ]
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    # Slurm's own job waits for a node, and would start on the first that is free.
    greedy = slurm.command(
        "sbatch", "--parsable", "--output=/dev/null", "-t1", "--mem=1G", *WHOLE_NODE, "--wrap=sleep 60"
    )
    large = slurm.submit(*EVERYTHING)
    plan = planned(cluster)
    assert len(kinds(plan)) == 1 + len(victims)
    applied(plan, cluster, tmp_path)
    assert slurm.states()[large][0] == "RUNNING"
    assert slurm.states()[greedy][0] == "PENDING"
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")


def test_a_second_planner_is_refused(slurm, tmp_path):
    slurm.submit(*WHOLE_NODE)
    cluster, other = SlurmCluster(), SlurmCluster()
    plan = planned(cluster)
    with other.exclusively(), pytest.raises(LockedError):
        applied(plan, cluster, tmp_path)
    assert applied(plan, cluster, tmp_path).done


def test_a_user_without_rights_may_check_a_plan_and_not_apply_it(slurm, tmp_path, monkeypatch):
    """The commands run as another user than Slurm's own."""
    slurm.submit(*WHOLE_NODE)
    plan = planned(SlurmCluster())
    slurm.root.parent.chmod(0o755)
    for name in ("scontrol", "squeue", "sinfo", "sdiag", "scancel", "sacctmgr"):
        (tmp_path / name).write_text(
            '#!/bin/sh\nPATH=${PATH#*:} exec setpriv --reuid=65534 --clear-groups "${0##*/}" "$@"\n'
        )
        (tmp_path / name).chmod(0o755)
    log = AuditLog(tmp_path / "audit.jsonl")

    with monkeypatch.context() as without_rights:
        without_rights.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        assert len(check_plan(plan, SlurmCluster(), log, resume=False).left) == 1
        assert {each.subject: each.works for each in check_slurm()}["Slurm rights"] is None
        with pytest.raises(ExecutionError, match="Expected an operator of Slurm"):
            applied(plan, SlurmCluster(), tmp_path)
    assert all(each.works for each in check_slurm())
    with SlurmCluster().exclusively():
        assert {each.subject: each.works for each in check_slurm()}["Slurm lock"] is None
        with pytest.raises(LockedError):
            check_plan(plan, SlurmCluster(), log, resume=False)
    assert slurm.states()["1"][0] == "PENDING"


def test_a_node_that_dies_in_mid_apply_leaves_no_job_lost(slurm, tmp_path):
    jobs = [slurm.submit(*WHOLE_NODE) for _ in NODES]
    cluster = SlurmCluster()
    plan = planned(
        cluster, apply={"parallel": 1, "on_failure": "continue", "attempts": 1, "timeouts": {"start": 8}}
    )
    victim = next(iter(planned_nodes(plan)[jobs[-1]]))
    killed = []

    def kill_once(done, total, what):
        if not killed:
            killed.append(what)
            slurm.kill_node(victim)

    with pytest.raises(InterruptedApplyError):
        applied(plan, cluster, tmp_path, hooks=ApplyHooks(on_progress=kill_once))
    states = slurm.states()
    assert sorted(state for state, _ in states.values()) == ["PENDING", "RUNNING", "RUNNING", "RUNNING"]
    again = planned(cluster)
    assert all(victim not in nodes for nodes in planned_nodes(again).values())


def test_promised_starts_are_kept_on_the_jobs_and_read_back(slurm, tmp_path):
    jobs = [slurm.submit("-N2", "--ntasks-per-node=1", "--gpus-per-node=h100:8") for _ in range(3)]
    horizon = {"horizon": {"slots": 4, "length": "30m"}}
    cluster = SlurmCluster()
    first = planned(cluster, **horizon)
    applied(first, cluster, tmp_path)
    waiting = next(job for job in cluster.snapshot().jobs if job.running is None)
    (promised,) = [each for each in first.planned if each.promised]
    assert waiting.name == promised.job
    assert waiting.promise.start == promised.start
    assert [each.node for each in waiting.promise.replicas] == [each.node for each in promised.replicas]
    # A later plan keeps the promise, and one without later slots clears it.
    (kept,) = [each for each in planned(cluster, **horizon).planned if each.promised]
    assert kept.start == promised.start
    applied(planned(cluster), cluster, tmp_path)
    assert all(job.promise is None for job in cluster.snapshot().jobs)
    assert set(jobs) == {job.name for job in cluster.snapshot().jobs}


def test_a_start_that_has_not_landed_is_taken_back(slurm, tmp_path):
    ours = slurm.submit(*WHOLE_NODE)
    cluster = SlurmCluster()
    (start,) = changes_of(planned(cluster).actions)
    before = slurm.command("squeue", "--noheader", "--format=%T %r %n", f"--jobs={ours}")
    for node in NODES:
        blocker = slurm.submit(*WHOLE_NODE, f"--nodelist={node}", comment="")
        slurm.command("scontrol", "release", blocker)
        slurm.wait_running(blocker)
    key = f"plan:{start.id}"
    assert cluster.begin(start, key).phase in (ActionPhase.ASKED, ActionPhase.UNDER_WAY)
    slurm.wait_until(lambda: cluster.observe([key])[key].phase is ActionPhase.UNDER_WAY, "it is under way")
    cluster.undo(key)
    cluster.undo(key)
    assert cluster.observe([key])[key].phase is ActionPhase.NOT_BEGUN
    assert slurm.command("squeue", "--noheader", "--format=%T %r %n", f"--jobs={ours}") == before


def test_a_job_keeps_the_reservation_of_its_user(slurm, tmp_path):
    window = ("StartTime=now", "Duration=120", "Users=root", "Nodes=gpu02", "Flags=IGNORE_JOBS")
    slurm.command("scontrol", "create", "reservation", "ReservationName=course", *window)
    job = slurm.submit(*WHOLE_NODE, "--reservation=course")
    cluster = SlurmCluster()
    plan = planned(cluster)
    (start,) = changes_of(plan.actions)
    assert start.after.nodes == {"gpu02"}
    assert cluster.begin(start, "other:start/1").phase is not ActionPhase.FAILED
    cluster.undo("other:start/1")
    asked = ("squeue", "--noheader", "--format=%v", f"--jobs={job}")
    assert slurm.command(*asked) == "course"
    if slurm.states()[job][0] == "PENDING":
        applied(plan, cluster, tmp_path)
    assert slurm.states()[job] == ("RUNNING", "gpu02")
    assert slurm.command(*asked) == "course"


def test_a_powered_down_node_is_powered_up_for_a_job(slurm, tmp_path):
    job = slurm.submit("-N1", "--gpus-per-node=a100:8")
    cluster = SlurmCluster()
    plan = planned(cluster)
    (added,) = [change for change in changes_of(plan.actions) if change.type == "scale_up"]
    assert added.node in CLOUD
    applied(plan, cluster, tmp_path)
    assert "power" not in slurm.node_states()[added.node]
    assert {node.name: node.ready for node in cluster.snapshot().cluster.nodes}[added.node]
    if slurm.states()[job][0] != "RUNNING":
        applied(planned(cluster), cluster, tmp_path)
    assert slurm.states()[job] == ("RUNNING", added.node)


def test_a_job_that_asked_for_no_requeue_is_not_stopped(slurm, tmp_path):
    stays = slurm.submit(*WHOLE_NODE, "--no-requeue")
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    slurm.submit(*EVERYTHING)
    assert kinds(planned(cluster)) == []
    assert slurm.states()[stays][0] == "RUNNING"


@pytest.mark.parametrize(("which", "before"), kills(COMMANDS, apart=9))
def test_an_apply_killed_at_any_command_goes_on(slurm, tmp_path, which, before):
    small = slurm.submit(*WHOLE_NODE)
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    large = slurm.submit(*EVERYTHING)
    plan = planned(cluster)
    plan_file = tmp_path / "plan.json"
    save_plan(plan, plan_file)
    folder = killing_scontrol(tmp_path, which, before=before)
    first = apply_in_child(plan_file, tmp_path, path=str(folder))
    assert first.returncode == -signal.SIGKILL
    second = apply_in_child(plan_file, tmp_path, "--resume")
    assert second.returncode == 0, second.stdout + second.stderr
    assert slurm.states()[large][0] == "RUNNING"
    assert slurm.states()[small] == ("PENDING", "")
    restarts = slurm.command("scontrol", "show", "job", small)
    assert "Restarts=1" in restarts
    records = verify_log(tmp_path / ".gpuplan" / "audit.jsonl").records
    assert json.loads(records[-1].model_dump_json())["detail"].startswith("complete")
    assert "No reservations" in slurm.command("scontrol", "show", "reservation")


def test_a_check_of_a_plan_does_no_step(slurm, tmp_path):
    victim = slurm.submit(*WHOLE_NODE, comment="gpuplan signal=CONT@1")
    cluster = SlurmCluster()
    applied(planned(cluster), cluster, tmp_path)
    slurm.submit(*EVERYTHING)
    plan = planned(cluster)
    (stop,) = [change for change in changes_of(plan.actions) if change.type == "preempt"]
    assert cluster.begin(stop, key_of(plan, stop)).phase is ActionPhase.ASKED
    time.sleep(2)
    check_plan(plan, SlurmCluster(), AuditLog(tmp_path / "other.jsonl"), resume=True)
    assert slurm.states()[victim][0] == "RUNNING"
    applied(plan, cluster, tmp_path, resume=True)
    assert slurm.states()[victim][0] == "PENDING"
