"""The position of a waiting job among the other jobs, and what would make it start, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.policy.settings import Goal
from gpuplan.models.timing.durations import LeftBasis
from gpuplan.models.units import MILLI
from gpuplan.planner.explain.answers.job import RemedyKind
from gpuplan.planner.render.plan.header import format_signed
from gpuplan.planner.render.style import Tone
from gpuplan.planner.text_format import (
    format_count,
    format_cpus,
    format_duration,
    format_gib,
    format_gpu_hours,
    format_gpus,
    format_milli,
    format_money,
    format_time,
    hostlist,
    join_first_names,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.planner.explain.answers.job import (
        Explanation,
        FreeBlock,
        QueuePosition,
        QuotaLevel,
        Remedies,
        Remedy,
        ResourceHolder,
        Urgency,
    )
    from gpuplan.planner.render.style import Style

_SECONDS_PER_HOUR: Final = 3600
_LEFT: Final = {
    LeftBasis.DECLARED: "{}",
    LeftBasis.EXPECTED: "about {}",
    LeftBasis.MEAN: "{} on average",
    LeftBasis.GITTINS_INDEX: "{} by its Gittins index",
}
"""Time left of a job, by the basis of the estimate."""
_COST: Final = 17
"""Columns for the cost of a remedy."""


def position_entries(found: Explanation) -> Iterator[tuple[str, str]]:
    """Pairs of label and text; a continued label is empty."""
    if (stands := found.standing) is None:
        return
    yield "room", _room(stands)
    for number, quota in enumerate(stands.quotas):
        yield ("" if number else "quota"), _quota(quota)
    if stands.ahead_in_all:
        yield "ahead", _ahead(stands)
    for number, holder in enumerate(stands.holders):
        yield ("" if number else "held by"), _holder(holder, found.epoch)
    if rest := stands.holders_in_all - len(stands.holders):
        yield "", f"… {format_count(rest, 'more job')}"


def _room(stands: QueuePosition) -> str:
    if stands.largest_free is None:
        return "no node matches"
    places = f"{stands.replicas_fitting:,} of {format_count(stands.replicas_needed, 'replica')} would fit"
    free = _free(stands.largest_free)
    return f"{places} on {format_count(stands.matching_nodes, 'matching node')}; most is free on {free}"


def _free(block: FreeBlock) -> str:
    gpus = format_gpus(block.gpus * MILLI) if block.gpus else format_gpus(block.largest_share_milli)
    return f"{block.node}: {gpus}, {format_cpus(block.cpu_milli)}, {format_gib(block.memory_mib)}"


def _quota(quota: QuotaLevel) -> str:
    kind = f" {quota.gpu_model}" if quota.gpu_model else ""
    short = " (too few)" if quota.binds else ""
    return (
        f"{quota.queue} uses {format_milli(quota.used_milli)} of "
        f"{format_milli(quota.limit_milli)}{kind} GPUs, "
        f"needs {format_milli(quota.needed_milli)}{short}"
    )


def _ahead(stands: QueuePosition) -> str:
    own = stands.urgency
    told = ", ".join(f"{each.job} ({_urgency(each, own)})" for each in stands.ahead)
    more = f" and {rest:,} more" if (rest := stands.ahead_in_all - len(stands.ahead)) else ""
    go = "goes" if stands.ahead_in_all == 1 else "go"
    by_rho = any(each.goal is Goal.FAIRNESS for each in (own, *stands.ahead))
    rho = "; rho is the time here over that with an equal share of the cluster" if by_rho else ""
    return f"{format_count(stands.ahead_in_all, 'job')} {go} before it ({_urgency(own)}): {told}{more}{rho}"


def _urgency(found: Urgency, than: Urgency | None = None) -> str:
    """
    `priority 4, 2 GPUs for 6h, waited 20m`; without priority and weight where both jobs have the same.

    Goals that do not order by the time left show their own measure: `2 GPUs, had 3 GPU-hours`, `2 GPUs,
    rho 1.52`.
    """
    priority = "" if than and found.priority == than.priority else f"priority {found.priority:,}, "
    usual = than.weight_milli if than else MILLI
    weight = "" if found.weight_milli == usual else f"weight {format_milli(found.weight_milli)}, "
    gpus = format_gpus(found.gpu_milli) if found.gpu_milli else ""
    match found.goal:
        case Goal.LEAST_ATTAINED_SERVICE:
            decides = f"{gpus and f'{gpus}, '}had {format_gpu_hours(found.served_gpu_seconds * MILLI)}"
        case Goal.FAIRNESS:
            decides = f"{gpus and f'{gpus}, '}rho {found.rho:.2f}"
        case _:
            left = _LEFT[found.left_basis].format(format_duration(found.left_seconds))
            decides = f"{gpus and f'{gpus} for '}{left}"
    return f"{priority}{weight}{decides}, waited {format_duration(found.waited_seconds)}"


def _holder(holder: ResourceHolder, now: datetime) -> str:
    gpus = f" holds {format_gpus(holder.gpu_milli)}" if holder.gpu_milli else ""
    stoppable = ", may be stopped for it" if holder.may_be_stopped else ""
    return (
        f"{holder.job}{gpus} on {hostlist(holder.nodes)} until {format_time(holder.ends_at, now)}; "
        f"user {holder.user}, queue {holder.queue}, priority {holder.priority:,}{stoppable}"
    )


def remedy_lines(found: Explanation, style: Style) -> list[str]:
    """A table of what would make the job start; empty for a job that does not wait."""
    if (remedies := found.remedies) is None:
        return []
    if remedies.fits is not None:
        return ["", *style.wrap(_fits(remedies), 0)]
    if not remedies.found:
        return ["", *style.wrap(f"{_NOTHING[remedies.unplaced]}{_doubts(remedies)}", 0)]
    title = style.paint("What would make it start", Tone.STRONG)
    width = max(len(format_signed(each.points)) for each in remedies.found)
    width = max(width, len("POINTS"))
    lines = ["", title, style.paint(f"  {'POINTS':>{width}}  {'COSTS':<{_COST}}  CHANGE", Tone.QUIET)]
    for each in remedies.found:
        change = "; ".join(part.text for part in each.parts)
        change += " (by hand: no rule lets a plan do it)" if each.by_hand else ""
        first, *below = style.wrap(change, 2 + width + 2 + _COST + 2)
        cost = style.clean(_cost(each))
        lines += [f"  {format_signed(each.points):>{width}}  {cost:<{_COST}}  {first.strip()}", *below]
    if remedies.more:
        lines += style.wrap(f"… {remedies.more:,} more like these", 2)
    return [*lines, *style.wrap(f"{_MEANING}{_doubts(remedies)}", 0)]


_MEANING: Final = (
    "Everything else stays as this plan leaves it. The verifier has found each change to be enough; with "
    "less the job waits. Points are what the objective gains."
)
_NOTHING: Final = {
    False: "Nothing that was tried would make it start.",
    True: "By what is free it would fit now, but no places were found that the verifier accepts: so no "
    "change was tried.",
}
"""Text if no change is listed; the text for True is used if no change was tried."""


def _cost(remedy: Remedy) -> str:
    """The cost of a remedy in its natural unit; empty if it has none."""
    if remedy.seconds is not None:
        return format_duration(remedy.seconds)
    if remedy.price_per_hour:
        return f"{format_money(remedy.price_per_hour)}/h"
    if remedy.lost_gpu_hours:
        return format_gpu_hours(round(remedy.lost_gpu_hours * MILLI * _SECONDS_PER_HOUR)).replace(
            "less than ", "<"
        )
    return ""


def _fits(remedies: Remedies) -> str:
    fit = remedies.fits
    if fit is None:
        return ""
    if fit.points > 0:
        return (
            f"It would fit now on {hostlist(fit.nodes)}, for {format_signed(fit.points)} points: the "
            f"search has not "
            "found that out. Plan again with more time."
        )
    costs = f"but costs more than it brings: {format_signed(fit.points)} points."
    return f"It would fit now on {hostlist(fit.nodes)}, {costs}"


def _doubts(remedies: Remedies) -> str:
    """What was not tried, or could not be decided."""
    text = ""
    if any(part.kind is RemedyKind.PRIORITY for each in remedies.found for part in each.parts):
        text = " A priority is the least for the jobs that it names."
    if remedies.together_with:
        text += (
            f" It starts only together with {join_first_names(remedies.together_with)}; priorities "
            f"were not tried."
        )
    if remedies.unconfirmed:
        more = "more " if remedies.found else ""
        text += f" Whether {format_count(remedies.unconfirmed, f'{more}change')} would do is not known."
    return text
