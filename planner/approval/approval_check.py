"""
Whether a plan has the signatures that the policy in force asks for.

The policy in force on a cluster is `policy.yaml` in the folder of its state, or the file given to a command.
It decides which plans need approval. The policy inside a plan does not: the planner chose that one.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError, UnapprovedError
from gpuplan.models.policy.approval import Approval, public_key_bytes
from gpuplan.planner.approval.approvals_file import read_signatures, statement
from gpuplan.planner.approval.approver_keys import approver_keys
from gpuplan.planner.approval.conditions import ApprovalReason, approval_reason, approval_reasons
from gpuplan.planner.approval.ssh_signatures import BadSignatureError, fingerprint, signer_of
from gpuplan.planner.sources.files import default_policy_path, load_policy
from gpuplan.planner.text_format import format_count, join_first_names, wrapped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.approval.approvals_file import PlanSignature
    from gpuplan.planner.approval.approver_keys import ApproverKey


_IS: Final = ("is", "are")


@dataclass(frozen=True, slots=True)
class JudgedSignature:
    """A signature beside a plan, and whether it counts."""

    approver: str
    """Name of the approver; empty if the signature is not by one."""
    fingerprint: str
    """Fingerprint of the key; empty if the signature is not valid."""
    refusal: str = ""
    """Why it does not count; empty if it does."""

    @property
    def label(self) -> str:
        """Approver and key, for messages and the audit log."""
        return " ".join(part for part in (self.approver, self.fingerprint) if part) or "a signature"


@dataclass(frozen=True, slots=True)
class ApprovalState:
    """The approvals of a plan on one cluster."""

    reasons: tuple[ApprovalReason, ...]
    """Why the plan needs approval; empty if it needs none."""
    needed: int
    """Number of signatures that it needs."""
    signatures: tuple[JudgedSignature, ...]
    may_sign: tuple[str, ...]
    """Approvers that have not signed, with keys that would count."""

    @property
    def counted(self) -> tuple[JudgedSignature, ...]:
        """Signatures that count, one for each approver."""
        return tuple(each for each in self.signatures if not each.refusal)

    @property
    def missing(self) -> int:
        """Number of signatures that are missing."""
        return max(0, self.needed - len(self.counted))


@dataclass(frozen=True)
class ApprovalCheck:
    """The policy in force and the signatures beside a plan file, for one apply."""

    rules: Approval
    """Of the policy in force."""
    keys: tuple[ApproverKey, ...]
    """Keys that may approve under it."""
    checksum: str
    """Checksum of the plan file."""
    signatures: tuple[PlanSignature, ...] = ()
    plan_file: str = field(default="PLAN")
    """Path of the plan, for messages."""

    def state(self, plan: Plan, cluster: str, now: datetime) -> ApprovalState:
        """Judge all signatures of a plan for the cluster with this identity."""
        reasons = approval_reasons(plan, self.rules)
        judged = tuple(self._judged(plan, cluster, now))
        counted = {each.approver for each in judged if not each.refusal}
        usable = {key.name for key in self.keys if not self._refusal(key, plan, now)}
        return ApprovalState(
            reasons=reasons,
            needed=self.rules.signatures if reasons else 0,
            signatures=judged,
            may_sign=tuple(sorted(usable - counted)),
        )

    def require(self, plan: Plan, cluster: str, now: datetime) -> tuple[str, ...]:
        """
        Labels of the approvers of a plan, for the audit log.

        Raises
        ------
        UnapprovedError
            Signatures are missing.
        """
        state = self.state(plan, cluster, now)
        if state.missing:
            raise UnapprovedError(unapproved_message(plan, state, self.plan_file, cluster))
        return tuple(each.label for each in state.counted) if state.needed else ()

    def _judged(self, plan: Plan, cluster: str, now: datetime) -> Iterator[JudgedSignature]:
        seen: set[str] = set()
        for each in self.signatures:
            found = self.judge(plan, cluster, now, each)
            if not found.refusal and found.approver in seen:
                found = JudgedSignature(found.approver, found.fingerprint, "the approver has signed before")
            seen |= set() if found.refusal else {found.approver}
            yield found

    def judge(self, plan: Plan, cluster: str, now: datetime, given: PlanSignature) -> JudgedSignature:
        """Whether one signature counts."""
        if given.checksum != self.checksum:
            return JudgedSignature("", "", f"it is of another plan, with checksum {given.checksum[:16]}")
        if given.cluster != cluster:
            return JudgedSignature("", "", f"it is for another cluster, {given.cluster}")
        try:
            key = signer_of(statement(plan, self.checksum, cluster), given.signature)
        except BadSignatureError as error:
            return JudgedSignature("", "", str(error))
        print_ = fingerprint(key)
        theirs = [each for each in self.keys if each.key == key]
        if not theirs:
            revoked = " (revoked)" if self._is_revoked(key) else ""
            return JudgedSignature("", print_, f"the key is of no approver{revoked}")
        refusals = [self._refusal(each, plan, now) for each in theirs]
        usable = [each for each, refusal in zip(theirs, refusals, strict=True) if not refusal]
        if not usable:
            return JudgedSignature(theirs[0].name, print_, refusals[0])
        return JudgedSignature(usable[0].name, print_)

    def _refusal(self, key: ApproverKey, plan: Plan, now: datetime) -> str:
        """Why signatures with a key do not count for a plan; empty if they do."""
        if self._is_revoked(key.key):
            return f"the key of {key.name} is revoked"
        if is_planner(key, plan):
            return f"{key.name} made the plan; expected others than the planner"
        return key.refusal(now)

    def _is_revoked(self, key: bytes) -> bool:
        return key in map(public_key_bytes, self.rules.revoked)


def is_planner(key: ApproverKey, plan: Plan) -> bool:
    """True if a key is of the user that made the plan, whatever the host or domain after the @."""
    planner = _user(plan.planned_by)
    return bool(planner) and planner in map(_user, (key.name, *key.others))


def _user(name: str) -> str:
    return name.partition("@")[0].casefold()


def unapproved_message(plan: Plan, state: ApprovalState, plan_file: str, cluster: str) -> str:
    """The message for a plan without enough signatures: why it needs them, which it has, and what to do."""
    has = f"has {len(state.counted)}" if state.counted else "has none"
    needed, items = format_count(state.needed, "signature"), []
    for reason in state.reasons:
        actions = f" ({join_first_names(reason.actions)})" if reason.actions else ""
        items.append(f"{reason.text}{actions}")
    items += [f"counts: {each.label}" for each in state.counted]
    items += [f"does not count: {each.label}: {each.refusal}" for each in state.signatures if each.refusal]
    return "\n".join(
        (
            f"Plan {plan.plan_id} needs {needed} and {has}; nothing was done.",
            *(wrapped(f"  {item}", indent=4) for item in items),
            wrapped(f"{missing_in_words(state)} An approver signs with", indent=0),
            f"  gpuplan approve {shlex.quote(plan_file)} --cluster {shlex.quote(cluster)} --key KEY",
        )
    )


def missing_in_words(state: ApprovalState) -> str:
    """A sentence on the missing signatures, with the approvers that may give them."""
    left = f"; approvers that may sign: {join_first_names(state.may_sign)}" if state.may_sign else ""
    return f"{format_count(state.missing, 'signature')} {_IS[state.missing > 1]} missing{left}."


# The policy in force.


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """A policy and its file."""

    policy: Policy
    file: Path


def policy_in_force(state_folder: Path, given: str | None) -> PolicyInForce | None:
    """
    The policy in force; None if there is none.

    Raises
    ------
    PlannerError
        The cluster has a policy in force, and another file is given.
    BadInputError
        The policy cannot be read.
    """
    kept = default_policy_path(str(state_folder)) if state_folder.is_dir() else None
    if kept and given and not (Path(given).exists() and Path(given).samefile(kept)):
        raise PlannerError(
            f"the policy in force on this cluster is {kept}; found another one, {given}.\n"
            "Leave --policy out, or change that file."
        )
    file = kept or given
    return PolicyInForce(load_policy(file), Path(file)) if file else None


def approval_check(plan_file: str, checksum: str, force: PolicyInForce | None) -> ApprovalCheck:
    """What an apply of a plan file asks for, by default nothing, and the signatures that there are."""
    rules = force.policy.approval if force else Approval()
    keys = approver_keys(rules, force.file.parent) if force and rules.signatures else ()
    return ApprovalCheck(rules, keys, checksum, read_signatures(plan_file), plan_file)


def require_policy_in_force(plan: Plan, force: PolicyInForce | None, state_folder: Path) -> None:
    """
    Refuse a plan that needs signatures by its own policy, where no policy in force names the approvers.

    Raises
    ------
    UnapprovedError
        A policy in force is missing.
    """
    own = plan.policy.approval
    if force is None and own.signatures and (why := approval_reason(plan, own)):
        raise UnapprovedError(
            f"Plan {plan.plan_id} needs signatures by the policy it was made with: {why}.\n"
            "No policy in force names the approvers: give --policy, or write "
            f"{state_folder.absolute() / 'policy.yaml'}."
        )
