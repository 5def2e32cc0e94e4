"""Policies: what one call changes, the settings that differ between two, and settings that affect no job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuplan.models.errors import truncated_names
from gpuplan.models.plan.action_kinds import INFINITIVES, SWITCHES
from gpuplan.models.policy.policy import BudgetMode, Policy, SolverName
from gpuplan.models.policy.settings import Goal
from gpuplan.planner.text_format import join_first_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.snapshot import Snapshot


def with_options(
    policy: Policy,
    time_limit: int | None,
    solver: str,
    *,
    deterministic: bool,
    stop_gap: float | None = None,
) -> Policy:
    """
    The policy with what the caller overrides.

    `time_limit` is in milliseconds, `stop_gap` a fraction; None leaves what the policy says, as the solver
    `auto` does.
    """
    budget = policy.budget
    if time_limit is not None:
        budget = budget.model_copy(update={"time_limit_ms": time_limit})
    if stop_gap is not None:
        budget = budget.model_copy(update={"stop_gap": stop_gap})
    if deterministic:
        budget = budget.model_copy(update={"mode": BudgetMode.DETERMINISTIC})
    solvers = policy.solvers
    if solver != "auto":
        solvers = () if solver == "greedy" else (SolverName(solver),)
    return policy.model_copy(update={"budget": budget, "solvers": solvers})


def changed_knobs(old: Policy, new: Policy) -> Iterator[tuple[str, Any, Any]]:
    """
    Yield (path, before, after) of every setting that differs, by path, such as `disruption.preempt`.

    Values are as in the document; None if a policy does not have the setting. A list is one setting.
    """
    before, after = (dict(_knobs(policy.model_dump(mode="json"))) for policy in (old, new))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield path, before.get(path), after.get(path)


def _knobs(document: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _knobs(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value


# Policy settings that affect no job: they cause no error, but a warning tells the policy's author.


def settings_without_effect(policy: Policy, snapshot: Snapshot) -> Iterator[str]:
    """Yield one sentence for each setting without effect in plans of this snapshot."""
    objective, chosen = policy.objective, policy.weights
    known = {queue.name for queue in snapshot.queues}
    named = {
        "objective.queues": set(objective.queues),
        "disruption.budgets": {each.queue for each in policy.disruption.budgets if each.queue is not None},
        "approval.queues": set(policy.approval.queues),
    }
    for setting, queues in named.items():
        if missing := sorted(queues - known):
            yield (
                f"{setting} names {join_first_names(missing)}, no queue of the snapshot; known: "
                f"{truncated_names(known)}"
            )
    if Goal.VALUE not in objective.goals and {"basis", "ageing"} & chosen.model_fields_set:
        names = [f"weights.{name}" for name in ("basis", "ageing") if name in chosen.model_fields_set]
        yield (
            f"{' and '.join(names)} without effect: only the goal value uses it, and the goal is "
            f"{objective.goal}"
        )
    for section, switch, kinds in SWITCHES:
        settings = getattr(policy, section)
        stated = switch in settings.model_fields_set and getattr(settings, switch)
        if stated and not any(map(snapshot.cluster.offers, kinds)):
            cannot = " or ".join(INFINITIVES[kind] for kind in kinds)
            yield f"{section}.{switch} without effect: the cluster cannot {cannot}"
