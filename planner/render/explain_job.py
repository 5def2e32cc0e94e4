"""The explanation of one job as text, with what would make a waiting job start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.plan import DeadlineState
from gpuplan.models.policy.settings import Goal
from gpuplan.models.queue import resource_key
from gpuplan.models.timing.durations import DurationSource, LeftBasis
from gpuplan.models.units import MILLI
from gpuplan.planner.explain.explanation import RemedyKind
from gpuplan.planner.render.explain_node_queue import explanation_lines
from gpuplan.planner.render.plan.header import format_signed, gpu_hours_text
from gpuplan.planner.render.plan.warnings import finding_text
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
    format_thousandths,
    format_time,
    hostlist,
    join_first_names,
    join_jobs,
)
from gpuplan.planner.waiting.time_messages import DONE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from gpuplan.models.plan.reason import Reason
    from gpuplan.planner.explain.explanation import (
        AwaitedJob,
        Exchange,
        ExpectedDuration,
        Explanation,
        FreeBlock,
        HeldNodes,
        JobScaling,
        Neighbour,
        QueuePosition,
        QuotaLevel,
        Remedies,
        Remedy,
        ResourceHolder,
        Urgency,
    )
    from gpuplan.planner.render.style import Style

_LABEL: Final = 12
_MOST_NEIGHBOURS: Final = 20
_STATES: Final = {
    "start": "starts now",
    "keep": "runs on as it is",
    "wait": "waits",
    "preempt": "is stopped and waits",
    "shrink": "runs on with fewer replicas",
    "grow": "runs on with more replicas",
    "migrate": "moves",
}
_OUTLOOKS: Final = {
    DeadlineState.MET: "met",
    DeadlineState.CRITICAL: "met, but nearly too late to start",
    DeadlineState.LATE: "missed",
    DeadlineState.IMPOSSIBLE: "cannot be met any more",
}


def explanation_text(found: Explanation, style: Style) -> str:
    """One or more lines per topic of the explanation."""
    name = f"{found.job} ({found.given_name})" if found.given_name else found.job
    head = f"Job {name} {_STATES[found.action]}"
    lines = explanation_lines(head, found, _entries(found), style, label=_LABEL)
    return "\n".join([*lines, *remedy_lines(found, style)]) + "\n"


def _entries(found: Explanation) -> Iterator[tuple[str, str]]:
    """Pairs of label and text; a continued label is empty."""
    yield (
        "asks for",
        f"{found.asks_for}; queue {found.queue}, user {found.user}, priority {found.priority:,}",
    )
    yield "takes", duration_text(found)
    if found.scaling is not None:
        yield "scales", _scaling(found.scaling)
    for number, awaited in enumerate(found.depends_on):
        yield ("" if number else "depends on"), _awaited(awaited, found)
    if found.depends_on_at_least is not None:
        yield "", f"{found.depends_on_at_least:,} of these suffice"
    if found.finding is not None:
        yield "damage", finding_text(found.finding)
    yield "why", f"{found.reason.code}: {found.reason.text}"
    if found.stays:
        yield "stays", found.stays
    if found.action == "start" and isinstance(points := found.reason.numbers.get("points"), int):
        yield "brings", f"{format_signed(points)} points"
    for number, other in enumerate(found.exchange[:_MOST_NEIGHBOURS]):
        yield ("" if number else "in exchange"), _exchange(other)
    if (rest := len(found.exchange) - _MOST_NEIGHBOURS) > 0:
        yield "", f"… {format_count(rest, 'more job')}"
    yield from position_entries(found)
    yield from _times(found)
    told = found.neighbours[:_MOST_NEIGHBOURS]
    for number, neighbour in enumerate(told):
        yield ("" if number else "until then"), _neighbour(neighbour, found)
    if rest := len(found.neighbours) - len(told):
        yield "", f"… {format_count(rest, 'more job')}"


def _times(found: Explanation) -> Iterator[tuple[str, str]]:
    """Start, places, promise, finish and deadline."""
    now = found.epoch
    if found.projected_start is not None:
        held = "promised" if found.promised else "foreseen, not promised"
        waits = f"; waits {found.waits_for}" if found.waits_for else ""
        yield "start", f"{format_time(found.projected_start, now)} ({held}){waits}"
    elif found.action in ("wait", "preempt"):
        end = found.horizon_end
        none = "not projected, the plan looks at this instant alone"
        yield "start", none if end is None else f"none up to {format_time(end, now)}"
    if found.held is not None:
        yield "held", _held(found.held, found)
    if found.nodes or found.nodes_before:
        yield "places", _places(found)
    if found.earlier_promise is not None:
        yield "promise", _promise(found)
    if found.projected_finish is not None:
        yield "done", format_time(found.projected_finish, now)
    if found.kill_at is not None:
        yield "killed", f"at {format_time(found.kill_at, now)} if it still runs"
    if (outlook := found.deadline) is not None:
        hard = " (hard)" if outlook.hard else ""
        yield "deadline", f"{format_time(outlook.deadline, now)}{hard}: {_OUTLOOKS[outlook.state]}"


def _held(held: HeldNodes, found: Explanation) -> str:
    """`n0 and n1 from 15:00, because it starves (horizon.backfill.starving)`."""
    begins = format_time(held.begins, found.epoch)
    where = f"{join_first_names(held.nodes)} {'now' if held.begins <= found.epoch else f'from {begins}'}"
    if held.job == found.job:
        return f"{where}, because it has waited longest (horizon.backfill.starving)"
    return f"a place on {where}, beside {join_jobs([held.job])}, which starves"


def duration_text(found: Explanation) -> str:
    """`2h, 90th percentile of 14 finished jobs of ann in research with such a name; 30m left`."""
    expected = found.duration
    jobs = format_count(expected.samples, "finished job")
    rank = _ordinal(expected.percentile or 0)
    source = {
        DurationSource.DECLARED: "as declared",
        DurationSource.SAME_NAME: f"{rank} percentile of {jobs} of {found.user} in {found.queue} "
        "with such a name",
        DurationSource.SAME_USER: f"{rank} percentile of {jobs} of {found.user} in {found.queue}",
        DurationSource.SAME_QUEUE: f"{rank} percentile of {jobs} in {found.queue}",
        DurationSource.DEFAULT: "the policy's default",
    }[expected.source]
    parts = [f"{format_duration(expected.seconds)}, {source}"]
    if expected.seconds_in_order is not None:
        parts = [_in_order(expected, parts[0], source)]
    if expected.seconds_there not in (None, expected.seconds):
        parts.append(f"{format_duration(expected.seconds_there or 0)} on {expected.gpu_model}")
    if expected.seconds_saved is not None:
        parts.append(f"{format_duration(expected.seconds_saved)} saved by its last checkpoint")
    if expected.seconds_left is not None:
        back = expected.recovery_seconds
        back_text = f", {format_duration(back)} of it to come back" if back else ""
        parts.append(f"{format_duration(expected.seconds_left)} left{back_text}")
    return "; ".join(parts)


def _scaling(found: JobScaling) -> str:
    """`speed 1, 1.9, 3.4 with 1, 2, 4 replicas on A100-80GB, as declared`."""
    speeds = ", ".join(f"{speed:g}" for speed in found.speeds.values())
    sizes = ", ".join(f"{size:,}" for size in found.speeds)
    where = f" on {found.gpu_model}" if found.gpu_model else ""
    source = "learnt from finished jobs with such a name" if found.learnt else "as declared"
    return f"speed {speeds} with {sizes} replicas{where}, {source}"


def _in_order(expected: ExpectedDuration, told: str, source: str) -> str:
    """The durations of a job without a declared one: one gives its end, one its place in the order."""
    what = "mean" if expected.basis_in_order is LeftBasis.MEAN else "Gittins index"
    left = f"{format_duration(expected.seconds_in_order or 0)} left"
    if expected.samples:
        return f"{told}; its place in the order is reckoned with {left} (their {what})"
    return (
        f"not known: its end is reckoned with {format_duration(expected.seconds)} ({source}), "
        f"its place in the order with {left} (the {what} of jobs of unknown duration)"
    )


def _awaited(awaited: AwaitedJob, found: Explanation) -> str:
    what = f"{join_jobs([awaited.job])} has {DONE[awaited.kind]}"
    if awaited.satisfied:
        return f"{what}: yes"
    if awaited.never:
        return f"{what}: never any more"
    if awaited.expected_at is None:
        return f"{what}: not known when"
    return f"{what}: expected {format_time(awaited.expected_at, found.epoch)}"


def _promise(found: Explanation) -> str:
    """What became of the earlier promise."""
    if found.earlier_promise is None:
        return ""
    before = format_time(found.earlier_promise, found.epoch)
    if found.action == "start":
        return f"{before}; starts now"
    if found.projected_start is None or not found.promised:
        text = f"{before}; withdrawn"
    elif found.projected_start == found.earlier_promise:
        text = f"{before}; kept"
    else:
        change = "earlier" if found.projected_start < found.earlier_promise else "later"
        text = f"{before}; now {change}"
    return f"{text}: {found.promise_changed}" if found.promise_changed else text


def _places(found: Explanation) -> str:
    """`h100-1`, `h100-1 → h100-2`, `leaves h100-1`."""
    before, after = hostlist(found.nodes_before), hostlist(found.nodes)
    if not after:
        return f"leaves {before}"
    return f"{before} → {after}" if before not in ("", after) else after


def _exchange(other: Exchange) -> str:
    lost = f", loses {gpu_hours_text(other.lost_gpu_hours)}" if other.lost_gpu_hours else ""
    return f"{join_jobs([other.job])} {_STATES[other.action]}: {format_signed(other.points)} points{lost}"


def _neighbour(neighbour: Neighbour, found: Explanation) -> str:
    until = format_time(neighbour.until, found.epoch)
    runs = "is" if neighbour.starts_at is None else f"is from {format_time(neighbour.starts_at, found.epoch)}"
    place = ", in its place" if neighbour.in_its_place else ""
    return f"{join_jobs([neighbour.job])} {runs} on {neighbour.node} until {until}{place}"


def _ordinal(number: int) -> str:
    """`90th`, `1st`, `42nd`."""
    teen = number // 10 % 10 == 1
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


# The position of a waiting job among the other jobs, and what would make it start.


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
        yield "ahead", _ahead(found.job, stands)
    for number, holder in enumerate(stands.holders):
        yield ("" if number else "held by"), _holder(holder, found.epoch)
    if rest := stands.holders_in_all - len(stands.holders):
        yield "", f"… {format_count(rest, 'more job')}"


def _room(stands: QueuePosition) -> str:
    if stands.largest_free is None:
        return "no node matches"
    places = f"{stands.replicas_fitting:,} of {format_count(stands.replicas_needed, 'replica')} would fit"
    if stands.beside_promises:
        places = f"{places} beside promised starts"
    free = _free(stands.largest_free)
    return f"{places} on {format_count(stands.matching_nodes, 'matching node')}; most is free on {free}"


def _free(block: FreeBlock) -> str:
    gpus = format_gpus(block.gpus * MILLI) if block.gpus else format_gpus(block.largest_share_milli)
    return f"{block.node}: {gpus}, {format_cpus(block.cpu_milli)}, {format_gib(block.memory_mib)}"


def _quota(quota: QuotaLevel) -> str:
    resource = resource_key(quota.resource, quota.gpu_model)
    short = " (too few)" if quota.binds else ""
    of_limit = format_thousandths(quota.limit_milli, resource, used=quota.used_milli)
    needed = format_thousandths(quota.needed_milli, resource).split(" ", 1)[0]
    return f"{quota.queue} uses {of_limit}, needs {needed}{short}"


def _ahead(job: str, stands: QueuePosition) -> str:
    own = stands.urgency
    told = ", ".join(f"{each.job} ({_urgency(each, own)})" for each in stands.ahead)
    more = f" and {rest:,} more" if (rest := stands.ahead_in_all - len(stands.ahead)) else ""
    go = "goes" if stands.ahead_in_all == 1 else "go"
    by_rho = any(each.goal is Goal.FAIRNESS for each in (own, *stands.ahead))
    rho = "; rho is the time here over that with an equal share of the cluster" if by_rho else ""
    jobs = format_count(stands.ahead_in_all, "job")
    return f"{jobs} {go} before {join_jobs([job])} ({_urgency(own)}): {told}{more}{rho}"


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
        f"{join_jobs([holder.job])}{gpus} on {hostlist(holder.nodes)} "
        f"until {format_time(holder.ends_at, now)}; "
        f"user {holder.user}, queue {holder.queue}, priority {holder.priority:,}{stoppable}"
    )


def remedy_lines(found: Explanation, style: Style) -> list[str]:
    """A table of what would make the job start; empty for a job that does not wait."""
    if (remedies := found.remedies) is None:
        return []
    if remedies.fits is not None:
        return ["", *style.wrap(_fits(remedies, found.reason), 0)]
    if not remedies.found:
        return ["", *style.wrap(f"{_NOTHING[remedies.unplaced]}{_doubts(remedies)}", 0)]
    title = style.paint("What would make it start", Tone.STRONG)
    width = max(len(format_signed(each.points)) for each in remedies.found)
    width = max(width, len("POINTS"))
    lines = ["", title, style.paint(f"  {'POINTS':>{width}}  {'COSTS':<{_COST}}  CHANGE", Tone.QUIET)]
    for each in remedies.found:
        change = "; ".join(part.text for part in each.parts)
        change += " (by hand: no rule lets a plan do it)" if each.by_hand else ""
        cost = style.clean(_cost(each))
        lines += style.beside(f"  {format_signed(each.points):>{width}}  {cost:<{_COST}}  ", change)
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
        return gpu_hours_text(remedy.lost_gpu_hours).replace("less than ", "<")
    return ""


def _fits(remedies: Remedies, reason: Reason) -> str:
    fit = remedies.fits
    if fit is None:
        return ""
    if "saved_seconds" in reason.numbers:
        # The points of a later start are no price that a reader could weigh.
        return (
            f"It would fit now on {hostlist(fit.nodes)}, and waits for the sake of the queue. With "
            "objective: {rollouts: 0} in the policy every job starts as soon as it fits."
        )
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
            f" It starts only together with {join_jobs(remedies.together_with)}; priorities were not tried."
        )
    if remedies.unconfirmed:
        more = "more " if remedies.found else ""
        text += f" Whether {format_count(remedies.unconfirmed, f'{more}change')} would do is not known."
    return text
