"""
What the caller of an apply gives and gets: hooks and a clock while it runs, then its outcome, and the errors
for it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gpuplan.models.errors import PartlyAppliedError, PlannerError, StalePlanError, truncated_names
from gpuplan.models.plan.action_kinds import INFINITIVES
from gpuplan.planner.text_format import format_count, wrapped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuplan.models.cluster import Cluster
    from gpuplan.models.plan.action_kinds import ActionKind
    from gpuplan.planner.apply.precondition_checks import DriftItem


class MonotonicClock(Protocol):
    """Time, as an apply sees it."""

    def now(self) -> float:
        """Seconds since some instant; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        """See `MonotonicClock`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `MonotonicClock`."""
        time.sleep(seconds)


_SYSTEM_CLOCK: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class ApplyHooks:
    """What the caller of an apply sees and decides while it runs."""

    on_progress: Callable[[int, int, str], None] | None = None
    """Called after each landed step with the number done, the total number, and a label of the step."""
    stop: Callable[[], bool] = lambda: False
    """Once it is True, no further action begins; those under way are waited for."""
    clock: MonotonicClock = _SYSTEM_CLOCK


NO_HOOKS: Final = ApplyHooks()


_NAMED_AT_MOST: Final = 20
"""Ids or items listed in one message; the errors carry all of them."""

_NODES_NAMED: Final = 3
_FREED: Final = "no longer runs"
"""First words of a job's drift that only freed resources."""

_HOW_TO_GO_ON: Final = (
    "Go on with the same command and --resume,\nor make a new plan of what is left with `gpuplan plan`."
)


@dataclass(frozen=True, slots=True)
class FailedAction:
    """An action that could not be done, and why."""

    action: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplyOutcome:
    """Ids of the plan's changing actions by their outcome, in plan order."""

    done: tuple[str, ...]
    """Done by this run."""
    skipped: tuple[str, ...] = ()
    """Done by earlier runs."""
    failures: tuple[FailedAction, ...] = ()
    """Failed for good, in the order in which they failed."""
    remaining: tuple[str, ...] = ()
    """Not tried, or to be tried again."""


class DriftedPlanError(StalePlanError):
    """A stale plan, with everything that has changed."""

    def __init__(self, plan_id: str, items: tuple[DriftItem, ...]) -> None:
        super().__init__(_stale_message(plan_id, items))
        self.items = items


class OtherClusterError(StalePlanError):
    """A plan for another cluster."""

    def __init__(self, plan_id: str, meant: Cluster, found: Cluster) -> None:
        super().__init__(
            f"Plan {plan_id} is for another cluster.\n"
            f"{wrapped(f'  expected: {_cluster_in_words(meant)}', indent=12)}\n"
            f"{wrapped(f'  found:    {_cluster_in_words(found)}', indent=12)}\n"
            "Use it for the cluster that it was made for, or run `gpuplan plan` with a snapshot of this one."
        )


class IncapableError(PlannerError):
    """A plan with actions that the executor cannot carry out."""

    def __init__(self, plan_id: str, missing: Mapping[ActionKind, Sequence[str]]) -> None:
        listed = "\n".join(
            wrapped(f"  it cannot {INFINITIVES[kind]}: {truncated_names(ids)}", indent=4)
            for kind, ids in missing.items()
        )
        super().__init__(
            f"Plan {plan_id} has actions that this executor cannot carry out:\n{listed}\n"
            "Nothing was done. Plan again with a snapshot of this cluster; `can` in it says what it can do."
        )
        self.missing = dict(missing)


class UnperformedError(PlannerError):
    """The audit log records actions as done that the cluster has not performed."""

    def __init__(self, plan_id: str, lost: Sequence[str]) -> None:
        super().__init__(
            f"Plan {plan_id} is recorded as done where the cluster has not done it:\n"
            f"{_named('recorded but not done', lost)}\n"
            "The cluster was restored from a copy, or the log is of another one. Nothing was done.\n"
            "Run `gpuplan plan` with a snapshot of the cluster as it is now."
        )
        self.lost = tuple(lost)


class UnappliedError(PlannerError):
    """An apply that ended before it changed anything, with its outcome."""

    def __init__(self, message: str, outcome: ApplyOutcome) -> None:
        super().__init__(message)
        self.outcome = outcome


class InterruptedApplyError(PartlyAppliedError):
    """An apply that ended before the end of its plan, with its outcome."""

    def __init__(self, message: str, outcome: ApplyOutcome) -> None:
        super().__init__(message)
        self.outcome = outcome


def unfinished_error(plan_id: str, done: Sequence[str], left: Sequence[str]) -> InterruptedApplyError:
    """The error for a plan that an earlier run applied in part, if `resume` is not set."""
    return InterruptedApplyError(
        f"Plan {plan_id} was applied in part by an earlier run.\n"
        f"{_named('done', done)}\n"
        f"{_named('not done', left)}\n"
        f"{_HOW_TO_GO_ON}",
        ApplyOutcome(done=(), skipped=tuple(done), remaining=tuple(left)),
    )


def unrecorded_error(plan_id: str, outcome: ApplyOutcome, error: PlannerError) -> InterruptedApplyError:
    """The error for a run that did all actions but could not record the end."""
    return InterruptedApplyError(
        f"Plan {plan_id} was applied, but its audit log is not complete: {error}\n"
        "Run the same command with --resume to complete the log; no action is done twice.",
        outcome,
    )


def raise_unless_complete(plan_id: str, outcome: ApplyOutcome) -> None:
    """Raise an error that lists done and remaining actions, unless all are done."""
    if not outcome.failures and not outcome.remaining:
        return
    cause = _cause(outcome.failures)
    if not outcome.done and not outcome.skipped:
        raise UnappliedError(
            f"Plan {plan_id} was not applied: {cause}\n"
            "No action of it was done.\n"
            "Apply it again, or make a new plan with `gpuplan plan`.",
            outcome,
        )
    failed = [each.action for each in outcome.failures]
    named = f"{_named('failed', failed)}\n" if failed else ""
    raise InterruptedApplyError(
        f"Plan {plan_id} was applied in part: {cause}\n"
        f"{_named('done', (*outcome.skipped, *outcome.done))}\n"
        f"{named}"
        f"{_named('not done', outcome.remaining)}\n"
        f"{_HOW_TO_GO_ON}",
        outcome,
    )


def _cause(failures: Sequence[FailedAction]) -> str:
    """Why an apply ended early, one line for each of several failures."""
    if not failures:
        return "it was told to stop."
    if len(failures) == 1:
        return f"action {failures[0].action} failed: {failures[0].reason}"
    lines = _lines([f"{each.action}: {each.reason}" for each in failures])
    return "\n".join([f"{len(failures)} actions failed.", *lines])


def _lines(items: Sequence[object]) -> list[str]:
    """One wrapped line for each of the first items, and the number of the others."""
    more = len(items) - _NAMED_AT_MOST
    lines = [wrapped(f"  {item}", indent=4) for item in items[:_NAMED_AT_MOST]]
    return [*lines, f"  and {more} more"] if more > 0 else lines


def _named(state: str, ids: Sequence[str]) -> str:
    more = len(ids) - _NAMED_AT_MOST
    names = ", ".join(ids[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
    head = f"  {f'{state}:':<9} "
    return wrapped(f"{head}{len(ids)} ({names})" if ids else f"{head}none", indent=len(head))


def _cluster_in_words(cluster: Cluster) -> str:
    name = f"cluster {cluster.name}" if cluster.named else "a cluster"
    nodes = sorted(node.name for node in cluster.nodes)
    some = f", such as {', '.join(nodes[:_NODES_NAMED])}" if nodes else ""
    return f"{name} with {format_count(len(nodes), 'node')}{some}"


def _stale_message(plan_id: str, items: Sequence[DriftItem]) -> str:
    lines = [f"Plan {plan_id} is stale: {format_count(len(items), 'thing')} changed since it was made."]
    lines += _lines(items)
    lines.append("Run `gpuplan plan` again.")
    if all(item.change.startswith(_FREED) for item in items):
        lines.append("Such changes only free room: `--drift preconditions` accepts them.")
    return "\n".join(lines)
