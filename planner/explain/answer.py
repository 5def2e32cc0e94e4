"""The explanation of one job, queue or node of a plan, by what its name means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from gpuplan.models.errors import BadInputError, InputProblem, Suggestions
from gpuplan.planner.explain.job import explain
from gpuplan.planner.explain.node import explain_node
from gpuplan.planner.explain.queue import explain_queue
from gpuplan.planner.text_format import join_with_and

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuplan.models.plan.plan import Plan
    from gpuplan.planner.explain.explanation import Explanation
    from gpuplan.planner.explain.node import NodeExplanation
    from gpuplan.planner.explain.queue import QueueExplanation


if TYPE_CHECKING:
    AnyExplanation: TypeAlias = Explanation | QueueExplanation | NodeExplanation


def answer(plan: Plan, kind: Kind, name: str, *, source: str) -> AnyExplanation:
    """Explain what `lookup.meaning` found; `source` is where the plan is from, for messages."""
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


def resolve_name(plan: Plan, name: str, *, source: str) -> tuple[Kind, str]:
    """
    Return the kind and the plain name of what a name refers to; `job/x`, `queue/x` and `node/x` fix the kind.

    Raises
    ------
    BadInputError
        Nothing has the name, or things of several kinds have it; messages name `source` as the plan's origin.
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
    prefix, _, rest = name.partition("/")
    for kind in _KINDS:
        if prefix == kind and rest:
            if rest in known[kind]:
                return kind, rest
            hint = Suggestions().hint(rest, known[kind])
            raise BadInputError((InputProblem(source, f"no {kind} has the name {rest!r}.{hint}"),))
    hint = Suggestions().hint(name, sorted({each for names in known.values() for each in names}))
    message = f"no job, queue or node has the name {name!r}.{hint}"
    raise BadInputError((InputProblem(source, message),))
