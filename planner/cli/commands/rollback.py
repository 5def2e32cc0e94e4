"""`gpuplan rollback`: a plan that undoes what can be undone of an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuplan.planner.cli.clusters import (
    allow_mig_option,
    audit_option,
    check_executor,
    open_cluster,
    state_option,
)
from gpuplan.planner.cli.commands.plan import print_plan
from gpuplan.planner.cli.options import (
    ANY_PATH,
    EXECUTORS,
    PlanFile,
    current_user,
    show_spinner,
    stray_option,
)
from gpuplan.planner.cli.outputs import (
    EXIT_CHANGES,
    NewFile,
    WritingCommand,
    all_option,
    detailed_exitcode_option,
    layout_options,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.apply.applied import AppliedPart
    from gpuplan.planner.apply.audit_log import AuditLog


@click.command("rollback", cls=WritingCommand, epilog="Example: gpuplan rollback plan.json -o back.json")
@click.argument("plan_file", type=PlanFile())
@click.argument("source", type=ANY_PATH, required=False)
@click.option(
    "--executor",
    type=click.Choice(EXECUTORS),
    help="The cluster; by default of the kind that the plan was made for.",
)
@state_option
@allow_mig_option
@audit_option
@click.option(
    "--policy", "policy_file", type=ANY_PATH, help="Policy of the rollback; by default that of the plan."
)
@click.option(
    "--stop-started", is_flag=True, help="Stop all jobs that the plan started, also where none needs it."
)
@click.option("-o", "--out", type=NewFile(), help="Save the plan to this file.")
@layout_options
@all_option
@detailed_exitcode_option
def rollback_command(
    plan_file: str,
    source: str | None,
    executor: str | None,
    state: Path,
    allow_mig: bool,
    audit_file: Path,
    policy_file: str | None,
    stop_started: bool,
    out: Path | None,
    as_json: bool,
    plain: bool,
    everything: bool,
    detailed_exitcode: bool,
) -> int:
    """
    Plan how to undo what can be undone of an applied plan.

    It reads what was really done, wholly or in part, from the cluster and the audit log. Nothing is changed:
    review the rollback and apply it as any plan. With SOURCE, a snapshot of the cluster as it is now, the
    cluster is not asked.

    Jobs that were stopped, moved or resized go back to where they ran; nodes, cordons and MIG layouts are put
    back. Jobs that the plan started run on, unless one that goes back needs their place. What stays is listed
    with its reason.
    """
    from datetime import UTC, datetime

    from gpuplan.planner.analysis.effects import likely_executor
    from gpuplan.planner.apply.audit_log import AuditLog
    from gpuplan.planner.plan_file.plan_file import load_plan, save_plan
    from gpuplan.planner.rollback.rollback import roll_back
    from gpuplan.planner.sources.files import load_policy

    if source is not None and (stray := stray_option({"executor", "state", "allow_mig"})):
        raise click.UsageError(f"{stray} is for a cluster; expected no SOURCE with it.")
    plan, policy = load_plan(plan_file), load_policy(policy_file) if policy_file else None
    executor = executor or likely_executor(plan.snapshot)
    if source is None:
        check_executor(executor)
    with show_spinner("reading"):
        applied = _applied(plan, source, AuditLog(audit_file), executor, state, allow_mig=allow_mig)
    with show_spinner("planning"):
        made = roll_back(
            plan, applied, created_at=datetime.now(UTC), policy=policy, stop_started=stop_started
        )
    named = {"policy_file": policy_file or plan.policy_file, "planned_by": current_user()}
    made = made.model_copy(update=named)
    if out is not None:
        save_plan(made, out)
    print_plan(made, as_json=as_json, plain=plain, everything=everything, path=out)
    return EXIT_CHANGES if detailed_exitcode and made.has_changes else 0


def _applied(
    plan: Plan, source: str | None, audit: AuditLog, executor: str, state: Path, *, allow_mig: bool
) -> AppliedPart:
    from gpuplan.planner.apply.applied import applied_by_log, applied_on
    from gpuplan.planner.sources.files import load_snapshot

    if source is not None:
        return applied_by_log(plan, load_snapshot(source), audit)
    with open_cluster(executor, state, allow_mig=allow_mig) as cluster:
        return applied_on(plan, cluster, audit)
