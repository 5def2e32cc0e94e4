"""
The policy in force on a cluster: `policy.yaml` in the folder of its state, or the file given to a command.

It decides which plans need approval. The policy inside a plan does not: the planner chose that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError, UnapprovedError
from gpuplan.models.policy.approval import Approval
from gpuplan.planner.approval.approval_check import ApprovalCheck
from gpuplan.planner.approval.approvals_file import read_signatures
from gpuplan.planner.approval.approver_keys import approver_keys
from gpuplan.planner.approval.conditions import approval_reason
from gpuplan.planner.sources.files import default_policy_path, load_policy

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy


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
