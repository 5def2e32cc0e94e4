"""The explanation of one job, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpuplan.models.plan.plan import DeadlineState
from gpuplan.models.timing.durations import DurationSource, LeftBasis
from gpuplan.models.units import MILLI
from gpuplan.planner.render.explain.node_queue import explanation_lines
from gpuplan.planner.render.explain.remedies import position_entries, remedy_lines
from gpuplan.planner.render.plan.header import format_signed
from gpuplan.planner.render.plan.warnings import finding_text
from gpuplan.planner.render.style import Style
from gpuplan.planner.text_format import format_count, format_duration, format_gpu_hours, format_time, hostlist
from gpuplan.planner.waiting.time_messages import DONE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.planner.explain.answers.job import (
        AwaitedJob,
        Exchange,
        ExpectedDuration,
        Explanation,
        JobScaling,
        Neighbour,
    )

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


def explanation_text(found: Explanation, *, width: int, colour: bool, ascii_only: bool) -> str:
    """One or more lines per topic of the explanation."""
    style = Style(width=width, colour=colour, ascii_only=ascii_only)
    head = f"Job {found.job} {_STATES[found.action]}"
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
    what = f"{awaited.job} has {DONE[awaited.kind]}"
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
    lost = (
        f", loses {format_gpu_hours(round(other.lost_gpu_hours * MILLI * 3600))}"
        if other.lost_gpu_hours
        else ""
    )
    return f"{other.job} {_STATES[other.action]}: {format_signed(other.points)} points{lost}"


def _neighbour(neighbour: Neighbour, found: Explanation) -> str:
    until = format_time(neighbour.until, found.epoch)
    runs = "is" if neighbour.starts_at is None else f"is from {format_time(neighbour.starts_at, found.epoch)}"
    place = ", in its place" if neighbour.in_its_place else ""
    return f"{neighbour.job} {runs} on {neighbour.node} until {until}{place}"


def _ordinal(number: int) -> str:
    """`90th`, `1st`, `42nd`."""
    teen = number // 10 % 10 == 1
    return f"{number}{'th' if teen else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"
