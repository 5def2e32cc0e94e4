"""`gpuplan approve`: sign a plan, and show its signatures."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuplan.planner.cli.clusters import in_force_option, open_cluster, state_option
from gpuplan.planner.cli.options import EXECUTORS, PlanFile, is_terminal
from gpuplan.planner.cli.outputs import NewFile, WritingCommand, json_option, say, show_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.approval.approval_check import ApprovalCheck, ApprovalState
    from gpuplan.planner.approval.approvals_file import PlanSignature

_FILE = click.Path(path_type=Path)


@click.command("approve", cls=WritingCommand, epilog="Example: gpuplan approve plan.json --key id_ed25519")
@click.argument("plan_file", type=PlanFile())
@click.option("--key", type=_FILE, help="Sign with this Ed25519 private key.")
@click.option(
    "--signature", type=_FILE, help="Add this signature, made with `ssh-keygen -Y sign -n gpuplan`."
)
@click.option("--statement", is_flag=True, help="Print what is to be signed, and nothing else.")
@click.option("-o", "--out", type=NewFile(), help="With --statement: write it to this file.")
@click.option("--list", "lists", is_flag=True, help="Only show the signatures that there are.")
@click.option("--cluster", help="Identity of the cluster, as apply names it; by default that of --executor.")
@click.option(
    "--executor", type=click.Choice(EXECUTORS), default="simulated", show_default=True, help="The cluster."
)
@state_option
@in_force_option
@json_option
def approve_command(
    plan_file: str,
    key: Path | None,
    signature: Path | None,
    statement: bool,
    out: Path | None,
    lists: bool,
    cluster: str | None,
    executor: str,
    state: Path,
    policy_file: str | None,
    as_json: bool,
) -> None:
    """
    Sign a saved plan, so that it may be applied on one cluster.

    The signature is kept beside the plan, in PLAN.approvals; the plan file stays as it is. With an agent
    sign the output of --statement and add the result:

    \b
      gpuplan approve plan.json --statement -o statement
      ssh-keygen -Y sign -n gpuplan -f ~/.ssh/id_ed25519 statement
      gpuplan approve plan.json --signature statement.sig
    """  # noqa: D301 - click takes the character \b as the beginning of lines that stay as they are
    from datetime import UTC, datetime

    from gpuplan.planner.approval.approval_check import approval_check, policy_in_force
    from gpuplan.planner.approval.approvals_file import add_signature
    from gpuplan.planner.approval.approvals_file import statement as statement_of
    from gpuplan.planner.plan_file.plan_file import load_with_checksum

    if sum((key is not None, signature is not None, statement, lists)) != 1:
        raise click.UsageError("expected one of --key, --signature, --statement and --list.")
    if out is not None and not statement:
        raise click.UsageError("-o is for --statement.")
    plan, checksum = load_with_checksum(plan_file)
    cluster = cluster or _identity(executor, state)
    if statement:
        _write(statement_of(plan, checksum, cluster), out)
        return
    force = policy_in_force(state.parent, policy_file)
    check, now = approval_check(plan_file, checksum, force), datetime.now(UTC)
    if not lists:
        if not as_json:
            say("\n".join(_summary(plan, check, cluster, now)))
        new = _signature(plan, checksum, cluster, key, signature)
        if force is not None:
            _refuse_useless(check, plan, new, now)
        add_signature(plan_file, new)
        check = approval_check(plan_file, checksum, force)
    found = check.state(plan, cluster, now)
    if as_json:
        show_json(_document(plan, found, cluster))
        return
    say("\n".join(_listing(found, in_force=force is not None)))


def _write(text: bytes, out: Path | None) -> None:
    """Write a statement as it is: the signature is over its bytes."""
    from gpuplan.planner.io.atomic_write import write_atomically

    if out is None:
        say(text.decode(), nl=False)
    else:
        write_atomically(out, text)


def _identity(executor: str, state: Path) -> str:
    if executor == "simulated" and not state.exists():
        raise click.UsageError(
            f"no cluster is at {state}: expected its --state, or its identity in --cluster."
        )
    with open_cluster(executor, state) as cluster:
        return cluster.identity


def _signature(
    plan: Plan, checksum: str, cluster: str, key: Path | None, signature: Path | None
) -> PlanSignature:
    """Make or read a signature; one that is not of this plan and cluster is refused."""
    from gpuplan.models.errors import TamperedError
    from gpuplan.planner.approval import ssh_signatures
    from gpuplan.planner.approval.approvals_file import PlanSignature, statement

    message = statement(plan, checksum, cluster)
    try:
        if key is not None:
            text = ssh_signatures.sign(message, ssh_signatures.read_private_key(key.expanduser(), _ask))
        else:
            text = _read(Path(str(signature)))
        signer = ssh_signatures.signer_of(message, text)
    except ssh_signatures.BadSignatureError as error:
        raise TamperedError(
            f"{signature} cannot be added: {error}.\n"
            f"Sign the output of `gpuplan approve --statement` for this plan and cluster {cluster}."
        ) from None
    line = ssh_signatures.openssh_line(signer)
    return PlanSignature(cluster=cluster, checksum=checksum, key=line, signature=text)


def _read(path: Path) -> str:
    from gpuplan.models.errors import PlannerError

    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise PlannerError(f"signature {path} cannot be read: {error.strerror}.") from None


def _ask(prompt: str) -> str | None:
    import getpass

    return getpass.getpass(prompt) if is_terminal(sys.stdin) else None


def _refuse_useless(check: ApprovalCheck, plan: Plan, new: PlanSignature, now: datetime) -> None:
    """Raise if the signature would not count under the policy in force."""
    from gpuplan.models.errors import PlannerError

    if not check.rules.signatures:
        return
    if (judged := check.judge(plan, new.cluster, now, new)).refusal:
        raise PlannerError(
            f"the signature would not count, and is not added: {judged.refusal} ({judged.fingerprint}).\n"
            "Approvers and their keys are in `approval` of the policy in force."
        )


def _summary(plan: Plan, check: ApprovalCheck, cluster: str, now: datetime) -> Iterator[str]:
    """Yield the lines that say what is signed."""
    from gpuplan.models.plan.actions import changes_of
    from gpuplan.models.units import print_timestamp
    from gpuplan.planner.approval.conditions import affected_gpus, lost_gpu_hours
    from gpuplan.planner.text_format import count_by_kind, format_count

    made = f", made by {plan.planned_by}" if plan.planned_by else ""
    yield f"Plan {plan.plan_id} of {print_timestamp(plan.epoch)}{made}"
    yield f"  cluster   {cluster}"
    yield f"  changes   {count_by_kind(changes_of(plan.actions), done=False)}"
    lost = lost_gpu_hours(plan)
    losing = f"; {lost:,.1f} GPU-hours of unsaved work are lost" if lost else ""
    yield f"  affects   {format_count(affected_gpus(plan), 'GPU')}{losing}"
    for reason in check.state(plan, cluster, now).reasons:
        yield f"  approval  {reason.text}"


def _listing(found: ApprovalState, *, in_force: bool) -> Iterator[str]:
    """Yield the lines that say which signatures there are, and how many are missing."""
    from gpuplan.planner.approval.approval_check import missing_in_words
    from gpuplan.planner.text_format import format_count

    for each in found.signatures:
        if not in_force and each.fingerprint:
            yield f"{'signed':<15} {each.fingerprint}"
            continue
        yield f"{'does not count' if each.refusal else 'counts':<15} {each.label}" + (
            f": {each.refusal}" if each.refusal else ""
        )
    if not in_force:
        yield "No policy is in force here: whether the signatures count is decided by apply."
    elif not found.needed:
        yield "The policy in force asks for no signature of this plan."
    elif not found.missing:
        yield f"Approved: {len(found.counted)} of {format_count(found.needed, 'signature')}."
    else:
        needed = format_count(found.needed, "signature")
        yield f"{len(found.counted)} of {needed}: {missing_in_words(found)}"


def _document(plan: Plan, found: ApprovalState, cluster: str) -> dict[str, object]:
    return {
        "plan_id": plan.plan_id,
        "cluster": cluster,
        "approved": not found.missing,
        "needed": found.needed,
        "missing": found.missing,
        "reasons": [{"text": each.text, "actions": each.actions} for each in found.reasons],
        "signatures": [
            {
                "approver": each.approver or None,
                "key": each.fingerprint or None,
                "counts": not each.refusal,
                "refusal": each.refusal or None,
            }
            for each in found.signatures
        ],
        "may_sign": found.may_sign,
    }
