"""Text formats of numbers with units and of times, the same in reasons, tables and reports."""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter, defaultdict
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final

from gpuplan.models.job import ResourceRequest
from gpuplan.models.placement import GpuShare, Placement
from gpuplan.models.plan.actions import (
    ACTIONS,
    Change,
    Grow,
    Migrate,
    NodeAction,
    Preempt,
    Release,
    Repartition,
    Shrink,
    Start,
    info_of,
)
from gpuplan.models.queue import ALL_MODELS, CPUS, MEMORY, is_gpu_model
from gpuplan.models.units import MILLI, SECONDS_PER_HOUR, print_milli

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpuplan.models.cluster import MigInstance, Node


_WIDTH: Final = 79
"""Columns of a message; a terminal has at least 80."""
_MIB_PER_GIB: Final = 1024
_MOST_PARTS: Final = 3
_TERMS: Final = {"preempt": "preemption", "migrate": "migration", "shrink": "resize", "grow": "resize"}
"""The objective's term for each change that disrupts jobs."""

_SECONDS_PER_UNIT: Final = (("d", 24 * 3600), ("h", 3600), ("m", 60), ("s", 1))


def on_one_line(text: str) -> str:
    """The text with all control characters escaped, including line ends."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def printable(text: str) -> str:
    """The text with control characters escaped, except for line ends."""
    return "\n".join(map(on_one_line, text.split("\n")))


def printable_json(text: str) -> str:
    """The same JSON with the control characters in its strings escaped."""
    return "\n".join(
        line
        if line.isprintable()
        else "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)
        for line in text.split("\n")
    )


def wrapped(text: str, *, indent: int, width: int = _WIDTH) -> str:
    """The text of a message in lines that a terminal shows, the later ones indented; names are not broken."""
    return textwrap.fill(
        text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    )


def format_count(number: int, noun: str) -> str:
    """`1 job`, `1,047 jobs`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def format_milli(milli: int) -> str:
    """Thousandths as a decimal number: `0.46`, `1,047`."""
    return f"{print_milli(milli):,}"


def format_gpus(milli: int) -> str:
    """`0.46 GPU`, `1 GPU`, `131.5 GPUs`."""
    return f"{format_milli(milli)} GPU" if 0 < milli <= MILLI else f"{format_milli(milli)} GPUs"


def format_cpus(milli: int) -> str:
    """`0.5 CPU`, `16 CPUs`."""
    return f"{format_milli(milli)} CPU" if 0 < milli <= MILLI else f"{format_milli(milli)} CPUs"


def format_gib(mib: int) -> str:
    """`64 GiB`, `0.5 GiB`; three decimals are enough to distinguish MiB amounts."""
    return f"{f'{mib / _MIB_PER_GIB:,.3f}'.rstrip('0').rstrip('.')} GiB"


def format_quota(amount: int, resource: str, *, used: int | None = None) -> str:
    """`2 GPUs`, `2 T4 GPUs`, `16 CPUs`, `64 GiB of memory`; with `used` as `1 of 2 GPUs`."""
    number, unit = _quota_text(amount, resource).split(" ", 1)
    kind = f"{resource} " if is_gpu_model(resource) else ""
    of = "" if used is None else f"{_quota_text(used, resource).split(' ', 1)[0]} of "
    return f"{of}{number} {kind}{unit}{' of memory' if resource == MEMORY else ''}"


def _quota_text(amount: int, resource: str) -> str:
    return {CPUS: format_cpus, MEMORY: format_gib}.get(resource, format_gpus)(amount)


def quota_label(resource: str) -> str:
    """What a quota counts, as the head of a line: `GPUs`, `T4`, `CPUs`, `memory`."""
    return {ALL_MODELS: "GPUs", CPUS: "CPUs", MEMORY: "memory"}.get(resource, resource)


def format_under_label(milli: int, resource: str) -> str:
    """An amount beside its label, from `quota_thousandths`: `2`, `64 GiB`."""
    return format_gib(milli // MILLI) if resource == MEMORY else format_milli(milli)


def quota_number(amount: int, resource: str) -> float:
    """An amount of a resource with quotas as documents state it: GPUs, CPU cores or MiB."""
    return print_milli(quota_thousandths(amount, resource))


def quota_thousandths(amount: int, resource: str) -> int:
    """An amount of a resource with quotas in thousandths of what documents state: GPUs, CPU cores or MiB."""
    return amount * MILLI if resource == MEMORY else amount


def format_thousandths(milli: int, resource: str, *, used: int | None = None) -> str:
    """As `format_quota`, from `quota_thousandths`."""
    unit = MILLI if resource == MEMORY else 1
    return format_quota(milli // unit, resource, used=None if used is None else used // unit)


def format_points(points: int, disruption: int, change: str) -> str:
    """
    `costs 236 points: work -200, preemption -36`, for a job that is preempted, migrated, shrunk or grown.

    The disruption is separate so that these lines add up to the term of that name; `costs 36 points` if it is
    the only part.
    """
    text = f"costs {-points:,} points" if points < 0 else f"brings {points:,} points"
    work = points - disruption
    return f"{text}: work {work:+,}, {_TERMS[change]} {disruption:+,}" if work and disruption else text


def format_duration(seconds: int) -> str:
    """The two largest units: `2d4h`, `3h10m`, `45s`."""
    parts = []
    for unit, size in _SECONDS_PER_UNIT:
        amount, seconds = divmod(seconds, size)
        parts.append(f"{amount}{unit}" if amount else "")
    first = next((index for index, part in enumerate(parts) if part), None)
    return "0s" if first is None else "".join(parts[first : first + 2])


def join_with_and(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *front, last = parts
    return f"{', '.join(front)} and {last}" if front else last


def join_first_names(names: Sequence[str], most: int = _MOST_PARTS) -> str:
    """`a`, `a and b`, `a, b and 5 more`: at most `most` parts."""
    if len(names) <= most:
        return join_with_and(names)
    told = names[: most - 1]
    return join_with_and([*told, f"{len(names) - len(told):,} more"])


def join_jobs(names: Sequence[str]) -> str:
    """
    `a, b and 5 more`; names that begin with a digit, such as Slurm's, as `job 16`, `jobs 3_1 and 16`.

    Without the word, `makes room for 16` and `takes the place of 10, 11 and 2 more` read as numbers of jobs.
    """
    text = join_first_names(names)
    told = names if len(names) <= _MOST_PARTS else names[: _MOST_PARTS - 1]
    if not any(name[:1].isdigit() for name in told):
        return text
    return f"{'job' if len(names) == 1 else 'jobs'} {text}"


def format_gpu_hours(gpu_milli_seconds: int) -> str:
    """`1.4 GPU-hours`, rounded; `less than 0.1 GPU-hours` for smaller amounts."""
    hours = gpu_milli_seconds / (MILLI * SECONDS_PER_HOUR)
    shown = f"{hours:,.1f}".removesuffix(".0")
    if shown == "0" and hours:
        return "less than 0.1 GPU-hours"
    return f"{shown} GPU-hour{'' if shown == '1' else 's'}"


def format_money(amount: float) -> str:
    """`24.50`, in the cluster's currency, which has no name in any document."""
    return f"{amount:,.2f}"


def replica_size(request: ResourceRequest) -> str:
    """Request of one replica, by its scarcest resource: `8 GPUs`, `0.46 GPU`, `16 CPUs`, `64 GiB`."""
    if request.gpus or request.gpu_milli:
        return format_gpus(request.gpus * MILLI + request.gpu_milli)
    if request.mig:
        return " + ".join(
            profile if count == 1 else f"{count} × {profile}"
            for profile, count in sorted(request.mig.items())
        )
    if request.cpu_milli:
        return format_cpus(request.cpu_milli)
    return format_gib(request.memory_mib) if request.memory_mib else "no GPU"


def gang_size(request: ResourceRequest, least: int, most: int) -> str:
    """Request of a whole gang: `4 × 8 GPUs`, `2-8 × 1 GPU`."""
    size = replica_size(request)
    if least != most:
        return f"{least:,}-{most:,} × {size}"
    return size if least == 1 else f"{least:,} × {size}"


def placement_size(placement: Placement) -> str:
    """Resources of a placed gang with equal replicas: `4 × 8 GPUs`."""
    replicas = len(placement.replicas)
    return gang_size(_request_of(placement), replicas, replicas)


def format_resize(before: Placement, after: Placement) -> str:
    """Resources of a gang that grows or shrinks: `4 → 2 × 8 GPUs`."""
    size = replica_size(_request_of(after))
    return f"{len(before.replicas):,} → {len(after.replicas):,} × {size}"


def _request_of(placement: Placement) -> ResourceRequest:
    """The request that one replica of a placement meets."""
    replica = placement.replicas[0]
    profiles = Counter(held.profile for held in replica.gpus if not isinstance(held, GpuShare))
    shares = [held.milli for held in replica.gpus if isinstance(held, GpuShare)]
    # A replica holds either whole GPUs or one share, so the sum distinguishes them.
    gpus, share = divmod(sum(shares), MILLI)
    return ResourceRequest.of_valid(
        gpus=gpus,
        gpu_milli=share,
        mig=dict(profiles),
        cpu_milli=replica.cpu_milli,
        memory_mib=replica.memory_mib,
    )


def format_mig_layout(instances: tuple[MigInstance, ...] | None) -> str:
    """A MIG layout in the order of its memory slices: `3g.40gb + 2 × 1g.10gb`, `no instances`, `MIG off`."""
    if instances is None:
        return "MIG off"
    ordered = sorted(instances, key=lambda instance: instance.start)
    runs = [(profile, len(list(same))) for profile, same in groupby(one.profile for one in ordered)]
    return (
        " + ".join(profile if count == 1 else f"{count} × {profile}" for profile, count in runs)
        or "no instances"
    )


def node_size(node: Node) -> str:
    """Size of a node, by its scarcest resource: `8 × H100-80GB`, `64 CPUs`."""
    if node.gpus is None:
        return format_cpus(node.cpu_milli)
    return f"{node.gpus.count} × {node.gpus.model}"


# Text format of times: the time of day, with the date if it is another day.


def format_time(moment: datetime, now: datetime) -> str:
    """`14:00`, or `2026-11-21 02:00` on another day than `now`; UTC, with seconds only if not 0."""
    moment, now = moment.astimezone(UTC), now.astimezone(UTC)
    time = f"{moment:%H:%M:%S}" if moment.second else f"{moment:%H:%M}"
    return time if moment.date() == now.date() else f"{moment.date()} {time}"


# Compressed node names in the hostlist format of Slurm: `h100-[03-06,09],login`.


_LAST_NUMBER: Final = re.compile(r"(.*?)(\d{1,15})(\D*)", re.ASCII)


def hostlist(names: Iterable[str]) -> str:
    """All names, each once; names that differ only in their last number share one bracket."""
    plain: list[str] = []
    numbers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in sorted(set(names)):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            numbers[match[1], match[3]].append(match[2])
    folded = [
        f"{prefix}{_bracket(list(_ranges(found)))}{suffix}" for (prefix, suffix), found in numbers.items()
    ]
    return ",".join(sorted([*plain, *folded]))


def _bracket(ranges: list[str]) -> str:
    return ranges[0] if len(ranges) == 1 and "-" not in ranges[0] else f"[{','.join(ranges)}]"


def _ranges(digits: list[str]) -> Iterator[str]:
    """`03`, `04`, `05`, `9` as `03-05`, `9`; numbers with leading zeros are grouped by width."""
    padded = {len(text) for text in digits if text[0] == "0" and len(text) > 1}
    by_width: dict[int, list[int]] = defaultdict(list)
    for text in digits:
        by_width[len(text) if len(text) in padded else 0].append(int(text))
    for width, found in sorted(by_width.items()):
        numbers = sorted(found)
        first = 0
        for position, number in enumerate(numbers):
            if position + 1 < len(numbers) and numbers[position + 1] == number + 1:
                continue
            run = sorted({numbers[first], number})
            yield "-".join(f"{end:0{width}d}" if width else str(end) for end in run)
            first = position + 1


# Texts for changes: in the audit log, in the progress of an apply, and counted by kind.


def action_subject(change: Change) -> str:
    """Object of a change: `job a`, `node n0`, `node n0 gpu 3`."""
    if isinstance(change, Repartition):
        return f"node {change.node} gpu {change.gpu}"
    return f"node {change.node}" if isinstance(change, NodeAction) else f"job {change.job}"


def action_label(change: Change) -> str:
    """Short text of a change."""
    match change:
        case Start():
            return f"start {change.job} on {_where(change.after)}"
        case Preempt():
            return f"preempt {change.job} on {_where(change.before)}"
        case Release():
            if change.after is None:
                return f"release {change.job} from {_where(change.before)}"
            before, after = len(change.before.replicas), len(change.after.replicas)
            return f"release {before - after} of {before} replicas of {change.job}"
        case Shrink() | Grow():
            before, after = len(change.before.replicas), len(change.after.replicas)
            return f"{change.type} {change.job} from {before} to {after} replicas"
        case Migrate():
            return f"migrate {change.job} from {_where(change.before)} to {_where(change.after)}"
        case Repartition():
            layout = ", ".join(f"{instance.profile} at {instance.start}" for instance in change.after)
            return f"repartition gpu {change.gpu} of {change.node} into {layout or 'nothing'}"
        case _:
            fields = {name: getattr(change, name) for name in type(change).model_fields}
            return str(info_of(change).phrase.format_map(fields))


def count_by_kind(changes: Iterable[Change], *, done: bool) -> str:
    """`3 starts, 1 preemption and 1 node to add`, or `1 node added` if done; `nothing` if there are none."""
    found = Counter[str](change.type for change in changes)
    parts = []
    for kind, info in ACTIONS.items():
        if number := found[kind.value]:
            parts.append(f"{number:,} {info.nouns[number != 1]}{info.endings[done]}")
    return join_with_and(parts) if parts else "nothing"


def _where(placement: Placement) -> str:
    nodes = sorted(placement.nodes)
    return nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes from {nodes[0]} to {nodes[-1]}"
