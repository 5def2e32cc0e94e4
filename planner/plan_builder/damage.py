"""Actions and findings for damage: lost places are released before all other actions."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.plan.actions import Change, Grow, JobAction, NodeAction, Release, Start
from gpuplan.models.plan.precondition import JobDamaged
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.units import MILLI
from gpuplan.models.validation.base import Damage, DamageFinding, FindingOutcome
from gpuplan.planner.analysis.effects import nodes_touched
from gpuplan.planner.text_format import format_gpu_hours

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from gpuplan.models.validation.damage import DamageSurvey, LostReplicas

_SECONDS_PER_HOUR = 3600
_CAUSES_TOLD = 3


def release_actions(survey: DamageSurvey, now: datetime) -> tuple[Release, ...]:
    """One release for each job that has lost places, by name."""
    return tuple(
        Release(
            id=f"release/{name}",
            job=name,
            before=loss.job.placement,
            after=loss.after,
            reason=_reason(loss, now),
            preconditions=(JobDamaged(job=name),),
        )
        for name, loss in sorted(survey.losses.items())
        if loss.released and loss.job.placement
    )


def after_releases(changes: Iterable[Change], released: Sequence[Release]) -> Iterator[Change]:
    """
    The changes; each depends on the releases of its job and on those on its nodes.

    It depends already on the releases that gave up its part of a quota or of another shared limit.
    """
    if not released:
        yield from changes
        return
    of_job = {release.job: release.id for release in released}
    of_node: dict[str, list[str]] = defaultdict(list)
    for release in released:
        for name in nodes_touched(release):
            of_node[name].append(release.id)
    for change in changes:
        first = {id_ for name in nodes_touched(change) for id_ in of_node.get(name, ())}
        if not isinstance(change, NodeAction) and change.job in of_job:
            first.add(of_job[change.job])
        before = (*sorted(first), *(id_ for id_ in change.after_actions if id_ not in first))
        yield change.model_copy(update={"after_actions": before}) if first else change


def damage_findings(
    survey: DamageSurvey, actions: Mapping[str, JobAction], now: datetime
) -> tuple[DamageFinding, ...]:
    """Findings for jobs that have lost places, by name, with their outcome; then all other damage."""
    of_jobs = (
        DamageFinding(
            subject=f"job {name}",
            job=name,
            kinds=tuple(dict.fromkeys(damage.kind for damage in loss.damages)),
            text=_told(loss, now),
            outcome=_outcome(loss, actions[name]),
        )
        for name, loss in sorted(survey.losses.items())
    )
    others: dict[str, list[Damage]] = defaultdict(list)
    for subject, damage in survey.notes:
        others[subject].append(damage)
    return (
        *of_jobs,
        *(
            DamageFinding(
                subject=subject,
                kinds=tuple(dict.fromkeys(damage.kind for damage in damages)),
                text=_causes(damages),
                outcome=FindingOutcome.LEFT,
            )
            for subject, damages in sorted(others.items())
        ),
    )


def _outcome(loss: LostReplicas, action: JobAction) -> FindingOutcome:
    if not loss.released:
        return FindingOutcome.LEFT
    match action:
        case Start():
            return FindingOutcome.RESTARTED
        case Grow():
            return FindingOutcome.COMPLETED
    return FindingOutcome.WAITING if action.after is None else FindingOutcome.CONTINUED


def _reason(loss: LostReplicas, now: datetime) -> Reason:
    """Causes of the loss, and the work that is lost."""
    numbers: dict[str, int | float | str] = {
        "unsaved_gpu_hours": round(_unsaved(loss, now) / MILLI / _SECONDS_PER_HOUR, 3)
    }
    return Reason(code=ReasonCode.DAMAGED, text=_told(loss, now), numbers=numbers)


def _told(loss: LostReplicas, now: datetime) -> str:
    """Text with the causes of a job's damage and the work that is lost."""
    text = _causes(loss.damages)
    if (unsaved := _unsaved(loss, now)) and loss.job.running:
        since = "its last checkpoint" if loss.job.running.last_checkpoint_at else "its start"
        text += f"; loses {format_gpu_hours(unsaved)} since {since}"
    return text


def _unsaved(loss: LostReplicas, now: datetime) -> int:
    """Unsaved work of a job that is pending again, in thousandths of GPU-seconds; 0 for other jobs."""
    running, placement = loss.job.running, loss.job.placement
    if loss.after is not None or running is None or placement is None:
        return 0
    safe = running.last_checkpoint_at or running.started_at
    return placement.quota_milli * max(0, int((now - safe).total_seconds()))


def _causes(damages: Sequence[Damage]) -> str:
    """Text of the first few causes, and the number of the others."""
    told = [damage.cause for damage in damages[:_CAUSES_TOLD]]
    if rest := len(damages) - len(told):
        told.append(f"{rest:,} more")
    return ", ".join(told)
