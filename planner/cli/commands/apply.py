"""`gpuplan apply` and `audit`: apply plans, and read the audit log."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gpuplan.planner.cli.clusters import (
    AUDIT,
    allow_mig_option,
    audit_option,
    check_executor,
    drift_option,
    in_force_option,
    open_or_create,
    state_option,
)
from gpuplan.planner.cli.options import (
    EXECUTORS,
    PlanFile,
    current_user,
    is_terminal,
    progress_label,
    terminal_width,
)
from gpuplan.planner.cli.outputs import json_option, say, show_json, show_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Drift
    from gpuplan.planner.apply.audit_log import AuditLog
    from gpuplan.planner.apply.outcome import ApplyOutcome
    from gpuplan.planner.apply.standing import ApplyProgress
    from gpuplan.planner.approval.approval_check import ApprovalCheck


@click.command("apply", epilog="Example: gpuplan apply plan.json --executor simulated")
@click.argument("plan_file", type=PlanFile())
@click.option(
    "--executor", type=click.Choice(EXECUTORS), required=True, help="Executor that applies the plan."
)
@state_option
@allow_mig_option
@audit_option
@in_force_option
@click.option("--auto-approve", is_flag=True, help="Do not ask.")
@click.option("--resume", is_flag=True, help="Continue a plan that was applied in part.")
@drift_option
@json_option
def apply_command(
    plan_file: str,
    executor: str,
    state: Path,
    allow_mig: bool,
    audit_file: Path,
    policy_file: str | None,
    auto_approve: bool,
    resume: bool,
    drift_mode: str | None,
    as_json: bool,
) -> None:
    """
    Apply a saved plan: check, ask, act, record each step.

    --json cannot ask, so it needs --auto-approve. Its output also describes a plan that was applied in part.
    A simulated cluster that does not exist yet is created from the plan's own snapshot.

    A plan that needs approval by the policy in force is refused (exit code 25) until `gpuplan approve` has
    added enough signatures.
    """
    from datetime import UTC, datetime

    from gpuplan.models.errors import UnapprovedError
    from gpuplan.models.policy.policy import Drift
    from gpuplan.planner.apply.apply import apply_plan
    from gpuplan.planner.apply.audit_log import AuditLog
    from gpuplan.planner.apply.outcome import ApplyHooks, ApplyOutcome, InterruptedApplyError, UnappliedError
    from gpuplan.planner.apply.promises import promise_step
    from gpuplan.planner.approval.approval_check import (
        approval_check,
        policy_in_force,
        require_policy_in_force,
    )
    from gpuplan.planner.io.atomic_write import make_directory
    from gpuplan.planner.plan_file.plan_file import load_with_checksum
    from gpuplan.planner.service.shutdown import stop_on_signals

    if as_json and not auto_approve:
        raise click.UsageError("--json cannot ask for approval: give --auto-approve too.")
    plan, checksum = load_with_checksum(plan_file)
    if not plan.has_changes and promise_step(plan) is None:
        if as_json:
            show_json(_outcome_document(plan, ApplyOutcome(done=()), audit_file))
            return
        say("No changes. There is nothing to apply.")
        if executor == "simulated" and not state.exists():
            say(f"No simulated cluster is at {state}; `gpuplan simulated create SOURCE` makes one.")
        return
    force = policy_in_force(state.parent, policy_file)
    require_policy_in_force(plan, force, state.parent)
    approval = approval_check(plan_file, checksum, force)
    absent = executor == "simulated" and not state.exists()
    if absent and approval.state(plan, "", datetime.now(UTC)).needed:
        raise UnapprovedError(
            f"Plan {plan.plan_id} needs approval, and there is no simulated cluster at {state} to approve it "
            "for.\nCreate it with `gpuplan simulated create SOURCE`, then run `gpuplan approve`."
        )
    make_directory(audit_file.parent)
    audit, mode = AuditLog(audit_file), Drift(drift_mode) if drift_mode else None
    check_executor(executor)
    if not auto_approve:
        _approve(
            plan,
            executor,
            state,
            audit,
            resume=resume,
            drift_mode=mode,
            approval=approval,
            allow_mig=allow_mig,
        )
    try:
        with (
            open_or_create(executor, state, plan, allow_mig=allow_mig) as cluster,
            _progress() as on_progress,
            stop_on_signals() as stop,
        ):
            outcome = apply_plan(
                plan,
                cluster,
                audit,
                actor=current_user(),
                now=lambda: datetime.now(UTC),
                resume=resume,
                drift_mode=mode,
                hooks=ApplyHooks(on_progress, lambda: stop.requested),
                approval=approval,
            )
    except (InterruptedApplyError, UnappliedError) as error:
        if as_json:
            show_json(_outcome_document(plan, error.outcome, audit_file))
        raise
    if as_json:
        show_json(_outcome_document(plan, outcome, audit_file))
        return
    if outcome.done:
        say(f"Apply complete: {_account(plan, outcome)}. Audit log: {audit_file}")
    else:
        say(f"Plan {plan.plan_id} is already applied: {_done_before(plan, outcome)}, none left.")


def _outcome_document(plan: Plan, outcome: ApplyOutcome, audit_file: Path) -> dict[str, Any]:
    """Outcome of each action, by its id."""
    failures = [{"action": each.action, "reason": each.reason} for each in outcome.failures]
    return {
        "plan_id": plan.plan_id,
        "complete": not failures and not outcome.remaining,
        "done": outcome.done,
        "done_before": outcome.skipped,
        "failed": failures[0] if failures else None,
        "failures": failures,
        "not_done": outcome.remaining,
        "audit": str(audit_file),
    }


def _account(plan: Plan, outcome: ApplyOutcome) -> str:
    """Summary of what this run did by kind of change, and how much was done before."""
    from gpuplan.models.plan.actions import changes_of
    from gpuplan.planner.apply.promises import promise_step
    from gpuplan.planner.text_format import count_by_kind

    done = set(outcome.done)
    changes = [change for change in changes_of(plan.actions) if change.id in done]
    kinds = count_by_kind(changes, done=True) if changes or plan.has_changes else "no changes"
    step = promise_step(plan)
    promised = f"; {step.account}" if step and step.id in done else ""
    return f"{kinds}{promised}" + (f"; {_done_before(plan, outcome)}" if outcome.skipped else "")


def _done_before(plan: Plan, outcome: ApplyOutcome) -> str:
    from gpuplan.planner.apply.promises import promise_step
    from gpuplan.planner.text_format import format_count

    return f"{format_count(len(outcome.skipped), 'step' if promise_step(plan) else 'action')} done before"


def _approve(
    plan: Plan,
    executor: str,
    state: Path,
    audit: AuditLog,
    *,
    resume: bool,
    drift_mode: Drift | None,
    approval: ApprovalCheck,
    allow_mig: bool,
) -> None:
    """Ask for approval if the plan passes its checks and some of it is left to do."""
    from datetime import UTC, datetime

    from gpuplan.planner.apply.apply import check_plan

    if executor == "simulated" and not state.exists():
        standing = check_plan(plan, None, audit, resume=resume, drift_mode=drift_mode)
    else:
        with open_or_create(executor, state, plan, allow_mig=allow_mig) as cluster:
            standing = check_plan(plan, cluster, audit, resume=resume, drift_mode=drift_mode)
            if standing.left:
                approval.require(plan, cluster.identity, datetime.now(UTC))
    if standing.left:
        _ask(plan, standing)


def _ask(plan: Plan, standing: ApplyProgress) -> None:
    from gpuplan.planner.apply.promises import PromiseStep
    from gpuplan.planner.render.plan.text import plan_text
    from gpuplan.planner.text_format import count_by_kind

    show_text(plan, plan_text, plain=False, verbose=False)
    say("")
    changes = [step for step in standing.left if not isinstance(step, PromiseStep)]
    deeds = [count_by_kind(changes, done=False)] * bool(changes)
    deeds += [step.label for step in standing.left if isinstance(step, PromiseStep)]
    left = len(standing.left)
    these = f"the {left} left of {standing.total}" if standing.done else "these"
    question = f"Apply {these} changes: {'; '.join(deeds)}? Only 'yes' will be accepted."
    say(click.wrap_text(question, terminal_width(), subsequent_indent="  "))
    try:
        answer = input("  Answer: ")
    except EOFError:
        answer = ""
    if answer != "yes":
        say("Not applied: nothing was changed.", err=True)
        sys.exit(1)


@contextmanager
def _progress() -> Iterator[Callable[[int, int, str], None] | None]:
    """Show a progress bar on a terminal; nothing elsewhere."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking the cluster", total=None)
        yield lambda done, total, what: bar.update(
            task, completed=done, total=total, description=progress_label(what)
        )


@click.group("audit", epilog="Example: gpuplan audit verify")
def audit_group() -> None:
    """Read and check the audit log of applied plans."""


_log_argument = click.argument("log", type=click.Path(path_type=Path), default=AUDIT)


@audit_group.command("verify", epilog="Example: gpuplan audit verify")
@_log_argument
@json_option
def audit_verify_command(log: Path, *, as_json: bool) -> None:
    """
    Check the hash chain of LOG: exit code 23 if a record was changed, added, or removed from the middle.

    Records removed at the end leave an intact chain; to detect that, keep the hash that is printed.
    """
    from gpuplan.planner.apply.audit_log import verify_log
    from gpuplan.planner.text_format import format_count

    trail = verify_log(log)
    if as_json:
        figures = {
            "records": len(trail.records),
            "last_hash": trail.last_hash,
            "cut_off": bool(trail.unfinished),
        }
        show_json({"verified": True, **figures})
        return
    records = format_count(len(trail.records), "record")
    say(f"Verified: {records}, chain intact up to {trail.last_hash}.")
    if trail.unfinished:
        say("The last line was cut off while it was written; the next apply will record that.")


@audit_group.command("show", epilog="Example: gpuplan audit show")
@_log_argument
@json_option
def audit_show_command(log: Path, *, as_json: bool) -> None:
    """Print LOG, one line per record, oldest first."""
    from gpuplan.models.units import print_timestamp
    from gpuplan.planner.apply.audit_log import verify_log

    records = verify_log(log).records
    if as_json:
        show_json({"records": [record.model_dump(mode="json") for record in records]})
        return
    for record in records:
        parts = (
            f"{record.sequence:>6}",
            print_timestamp(record.at),
            record.who,
            record.plan_id,
            f"{record.kind:<9}",
            record.action or "",
            record.outcome or "",
            record.detail,
            f"approved by {', '.join(record.approvers)}" if record.approvers else "",
        )
        say("  ".join(part for part in parts if part))
