"""
Relaxation: one change that may help a job to start, in steps; a further step never makes the start harder.

The relaxations of the job itself are here, those of the cluster in `cluster_relaxations`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from gpuplan.models.affinity import Toleration
from gpuplan.models.cluster import Level
from gpuplan.models.eligibility.node_eligibility import format_match
from gpuplan.models.gang import Gang
from gpuplan.models.units import MILLI, print_milli, print_timestamp
from gpuplan.planner.explain.explanation import RemedyKind, RemedyPart
from gpuplan.planner.text_format import format_count, format_cpus, format_gib, format_time, gang_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuplan.models.job import Job, ResourceRequest
    from gpuplan.planner.explain.hypothesis import Hypothesis


@dataclass(frozen=True)
class Relaxation:
    """A change in steps, from 1 to `most`."""

    most: int
    apply: Callable[[Hypothesis, int], Hypothesis]
    """Returns the question with this number of steps of the change."""
    part: Callable[[int], RemedyPart]
    """Returns this number of steps in words and as data."""


def relaxation_for_member(lever: Relaxation, name: str, asked: str) -> Relaxation:
    """Convert a lever on one member's question to a lever on the question about another member."""

    def pull(question: Hypothesis, step: int) -> Hypothesis:
        return lever.apply(question.for_member(name), step).for_member(asked)

    def part(step: int) -> RemedyPart:
        found = lever.part(step)
        return found.model_copy(update={"job": name, "text": f"for {name}: {found.text}"})

    return replace(lever, apply=pull, part=part)


def constant_part(part: RemedyPart) -> Callable[[int], RemedyPart]:
    """Return the same part for every step; for levers of one step."""
    return lambda _: part


def fewest_steps(most: int, enough: Callable[[int], bool]) -> int | None:
    """
    Return the fewest steps that suffice, given that `enough` is monotone; None if even `most` does not.

    Doubling tries few steps first, because a question with many steps concerns much of the cluster.
    """
    low, high = 1, 1
    while not enough(high):
        if high == most:
            return None
        low, high = high + 1, min(2 * high, most)
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


_WIDER: Final = (*Level, None)

_SIZES: Final[dict[str, tuple[RemedyKind, str, Callable[[int], str], Callable[[int], int | float]]]] = {
    "cpu_milli": (RemedyKind.CPUS, "cpus", format_cpus, print_milli),
    "memory_mib": (RemedyKind.MEMORY, "memory_mib", format_gib, int),
}
"""By field of a request: kind of remedy, its subject, and formatters of the amount for people and data."""


def relaxations_of_jobs(question: Hypothesis) -> Iterator[Relaxation]:
    """Yield every change of the job, and of the jobs that start together with it."""
    yield from _relaxations_of(question)
    for other in question.others:
        for lever in _relaxations_of(question.for_member(other.name)):
            yield relaxation_for_member(lever, other.name, question.job.name)


def _relaxations_of(question: Hypothesis) -> Iterator[Relaxation]:
    """Changes of one job, the least far-reaching first."""
    job = question.job
    if job.held and not job.hold_reason:
        part = RemedyPart(
            kind=RemedyKind.RELEASE, subject=job.name, before="held", after="", text="release it"
        )
        yield _switch({"held": False}, part)
    if job.retries_used_up:
        failures = format_count(job.failures, "failure")
        part = RemedyPart(
            kind=RemedyKind.RELEASE,
            subject=job.name,
            before=failures,
            after="",
            text=f"forget its {failures}",
        )
        yield _switch({"failures": 0, "failed_at": None}, part)
    if (begins := job.begins_at) is not None and begins > question.plan.snapshot.taken_at:
        part = RemedyPart(
            kind=RemedyKind.BEGIN,
            subject="failed_at" if begins == job.retry_at else "not_before",
            before=print_timestamp(begins),
            text=f"let it begin now instead of at {format_time(begins, question.plan.snapshot.taken_at)}",
        )
        yield _switch({"not_before": None, "failed_at": None}, part)
    yield from _gpu_models(question)
    yield from _conditions(job)
    yield from _taints(question)
    yield from _wider(job)
    yield from _smaller(job)


def _gpu_models(question: Hypothesis) -> Iterator[Relaxation]:
    job = question.job
    if not job.request.needs_gpu or not job.gpu_models:
        return
    there = {model for node in question.plan.snapshot.cluster.nodes if (model := node.gpu_model)}
    slowest = min(job.gpu_models.values())
    for model in sorted(there - job.gpu_models.keys()):
        part = RemedyPart(
            kind=RemedyKind.GPU_MODEL,
            subject=model,
            before=", ".join(sorted(job.gpu_models)),
            after=model,
            text=f"allow GPU model {model}",
        )
        yield _switch({"gpu_models": job.gpu_models | {model: slowest}}, part)


def _conditions(job: Job) -> Iterator[Relaxation]:
    """Drop one condition on nodes at a time."""
    for key, value in sorted(job.node_selector.items()):
        left = {name: wanted for name, wanted in job.node_selector.items() if name != key}
        yield _without_condition(f"{key}={value}", {"node_selector": left})
    for number, match in enumerate(job.affinity):
        others = (*job.affinity[:number], *job.affinity[number + 1 :])
        yield _without_condition(format_match(match), {"affinity": others})
    if job.regions:
        yield _without_condition(f"region {' or '.join(sorted(job.regions))}", {"regions": ()})


def _without_condition(what: str, update: dict[str, Any]) -> Relaxation:
    text = f"drop its condition on nodes: {what}"
    return _switch(update, RemedyPart(kind=RemedyKind.SELECTOR, subject="selector", before=what, text=text))


def _taints(question: Hypothesis) -> Iterator[Relaxation]:
    job = question.job
    taints = {taint for node in question.plan.snapshot.cluster.nodes for taint in node.taints}
    for taint in sorted(taints, key=lambda each: (each.key, each.value, each.effect)):
        if not job.tolerates(taint):
            tolerated = Toleration(key=taint.key, value=taint.value, effect=taint.effect)
            what = f"{taint.key}={taint.value}" if taint.value else taint.key
            part = RemedyPart(
                kind=RemedyKind.TOLERATION,
                subject=taint.key,
                after=f"{what}:{taint.effect.value}",
                text=f"let it tolerate the taint {what}",
            )
            yield _switch({"tolerations": (*job.tolerations, tolerated)}, part)


def _wider(job: Job) -> Iterator[Relaxation]:
    if (level := job.locality.required) is not None and job.gang.minimum > 1:
        wider = _WIDER[_WIDER.index(level) + 1 :]

        def apart(question: Hypothesis, step: int) -> Hypothesis:
            locality = question.job.locality.model_copy(update={"required": wider[step - 1]})
            return _with(question, {"locality": locality})

        def locality_part(step: int) -> RemedyPart:
            to = wider[step - 1]
            where = f"one {_word(to)}" if to else "anywhere"
            return RemedyPart(
                kind=RemedyKind.LOCALITY,
                subject="locality",
                before=level.value,
                after=to.value if to else None,
                text=f"let its replicas be in {where} instead of one {_word(level)}"
                if to
                else f"let its replicas be anywhere instead of in one {_word(level)}",
            )

        yield Relaxation(len(wider), apart, locality_part)
    if (spread := job.spread) is not None and spread.most < job.gang.minimum:

        def together(question: Hypothesis, step: int) -> Hypothesis:
            return _with(question, {"spread": spread.model_copy(update={"most": spread.most + step})})

        def spread_part(step: int) -> RemedyPart:
            return RemedyPart(
                kind=RemedyKind.SPREAD,
                subject="spread",
                before=spread.most,
                after=spread.most + step,
                text=f"allow {spread.most + step:,} of its replicas on one {_word(spread.level)} "
                f"instead of {spread.most:,}",
            )

        yield Relaxation(job.gang.minimum - spread.most, together, spread_part)


def _smaller(job: Job) -> Iterator[Relaxation]:
    gang, request = job.gang, job.request

    def with_fewer(question: Hypothesis, step: int) -> Hypothesis:
        fewer = gang.minimum - step
        return _with(question, {"gang": Gang(minimum=fewer, maximum=gang.maximum if gang.elastic else fewer)})

    def fewer_part(step: int) -> RemedyPart:
        fewer = gang.minimum - step
        most = gang.maximum if gang.elastic else fewer
        before, after = gang_size(request, gang.minimum, gang.maximum), gang_size(request, fewer, most)
        return RemedyPart(
            kind=RemedyKind.REPLICAS,
            subject="replicas",
            before=gang.minimum,
            after=fewer,
            text=f"ask for {after} instead of {before}",
        )

    if gang.minimum > 1:
        yield Relaxation(gang.minimum - 1, with_fewer, fewer_part)
    # A job without GPUs keeps at least one CPU: a job that asks for nothing is a different job.
    if (most := request.cpu_milli - (0 if request.needs_gpu else MILLI)) > 0:
        yield _asking_for_less(request, "cpu_milli", most)
    if request.memory_mib:
        yield _asking_for_less(request, "memory_mib", request.memory_mib)


def _asking_for_less(
    request: ResourceRequest, field: Literal["cpu_milli", "memory_mib"], most: int
) -> Relaxation:
    """A smaller request of CPUs or memory, in steps of the field's unit."""
    kind, subject, in_words, printed = _SIZES[field]
    before = getattr(request, field)

    def less(question: Hypothesis, step: int) -> Hypothesis:
        smaller = question.job.request.model_copy(update={field: before - step})
        return _with(question, {"request": smaller})

    def part(step: int) -> RemedyPart:
        return RemedyPart(
            kind=kind,
            subject=subject,
            before=printed(before),
            after=printed(before - step),
            text=f"ask for {in_words(before - step)} a replica instead of {in_words(before)}",
        )

    return Relaxation(most, less, part)


def _switch(update: dict[str, Any], part: RemedyPart) -> Relaxation:
    return Relaxation(1, lambda question, _: _with(question, update), constant_part(part))


def _with(question: Hypothesis, update: dict[str, Any]) -> Hypothesis:
    return replace(question, job=question.job.model_copy(update=update))


def _word(level: Level) -> str:
    return level.value.replace("_", " ")
