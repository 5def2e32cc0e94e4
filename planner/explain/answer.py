"""The explanation of one job, queue or node of a plan, by what its name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from gpuplan.models.errors import BadInputError, InputProblem, Suggestions
from gpuplan.planner.explain.job import GIVEN_NAME, explain
from gpuplan.planner.explain.node import explain_node
from gpuplan.planner.explain.queue import explain_queue
from gpuplan.planner.text_format import join_with_and

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.explain.explanation import Explanation
    from gpuplan.planner.explain.node import NodeExplanation
    from gpuplan.planner.explain.queue import QueueExplanation


if TYPE_CHECKING:
    AnyExplanation: TypeAlias = Explanation | QueueExplanation | NodeExplanation


def answer(plan: Plan, kind: Kind, name: str, *, source: str) -> AnyExplanation:
    """Explain what `resolve_name` found; `source` is where the plan is from, for messages."""
    match kind:
        case "job":
            return explain(plan, name, source=source)
        case "queue":
            return explain_queue(plan, name)
        case "node":
            return explain_node(plan, name)


# Resolve a name to a job, a queue or a node of a plan.


Kind: TypeAlias = Literal["job", "queue", "node"]

_KINDS: Final[tuple[Kind, ...]] = ("job", "queue", "node")
_MOST_TOLD: Final = 10


def resolve_name(plan: Plan, name: str, *, source: str) -> tuple[Kind, str]:
    """
    Return the kind and the plain name of what a name refers to; `job/x`, `queue/x` and `node/x` fix the kind.

    A job of Slurm is also found by the name that its user gave it.

    Raises
    ------
    BadInputError
        Nothing has the name, or things of several kinds or several jobs have it; messages name `source` as
        the plan's origin.
    """
    known: Mapping[Kind, Collection[str]] = {
        "job": plan.snapshot.job_by_name,
        "queue": [queue.name for queue in plan.snapshot.queues],
        "node": [node.name for node in (*plan.snapshot.cluster.nodes, *plan.target.added)],
    }
    found = [kind for kind in _KINDS if name in known[kind]]
    if len(found) == 1:
        return found[0], name
    if found:
        choices = " or ".join(f"{kind}/{name}" for kind in found)
        message = f"{name!r} is the name of a {join_with_and(found)}.\n  Say {choices}."
        raise BadInputError((InputProblem(source, message),))
    if job := _by_given_name(plan, name, source):
        return "job", job
    prefix, _, rest = name.partition("/")
    for kind in _KINDS:
        if prefix == kind and rest:
            if rest in known[kind]:
                return kind, rest
            if kind == "job" and (job := _by_given_name(plan, rest, source)):
                return kind, job
            hint = _hint(rest, known[kind])
            raise BadInputError((InputProblem(source, f"no {kind} has the name {rest!r}.{hint}"),))
    hint = _hint(name, {each for names in known.values() for each in names})
    message = f"no job, queue or node has the name {name!r}.{hint}"
    raise BadInputError((InputProblem(source, message),))


def _hint(name: str, known: Iterable[str]) -> str:
    """The next step for an unknown name: the closest known one, or the first of all."""
    names = sorted(known)
    told = ", ".join(names[:_MOST_TOLD]) + (", …" if len(names) > _MOST_TOLD else "")
    return Suggestions().hint(name, names) or (f"\n  Known: {told}." if names else "")


def job_named(plan: Plan, name: str, *, source: str) -> str:
    """
    Return the job that a name, with or without `job/`, refers to; as `resolve_name`.

    Raises
    ------
    BadInputError
        No job has the name, or several have it.
    """
    if name in plan.snapshot.job_by_name:
        return name
    return resolve_name(plan, "job/" + name.removeprefix("job/"), source=source)[1]


def _by_given_name(plan: Plan, name: str, source: str) -> str | None:
    """The one job to which its user gave this name; None if there is none."""
    named = [job.name for job in plan.snapshot.jobs if job.labels.get(GIVEN_NAME) == name]
    if len(named) <= 1:
        return named[0] if named else None
    told = ", ".join(named[:_MOST_TOLD]) + (", …" if len(named) > _MOST_TOLD else "")
    message = f"{len(named):,} jobs have the name {name!r}: {told}.\n  Say the number of one of them."
    raise BadInputError((InputProblem(source, message),))
