"""
What befalls the simulated cluster from outside: jobs are submitted, nodes fail and come back.

No plan does any of this, and so none of it is an operation with a key.
"""

from __future__ import annotations

from textwrap import indent
from typing import TYPE_CHECKING, Final

from planner.models.consistency import inconsistencies
from planner.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.executors.simulated_tables import Tables
    from planner.models.cluster import Node
    from planner.models.job import Job

_NAMED_AT_MOST: Final = 20
_INDENT: Final = "  "


def submit(tables: Tables, jobs: Sequence[Job]) -> None:
    """
    New jobs wait from now on, all of them or none.

    Raises
    ------
    PlannerError
        With all that is wrong with them: a job that runs, a name that is taken, a queue that is unknown.
    """
    live = tables.snapshot()
    problems = [f"job {job.name} runs; expected jobs that wait." for job in jobs if job.running is not None]
    waiting = tuple(job for job in jobs if job.running is None)
    # The new jobs stand last, so that what is wrong with them is known by its place.
    whole = live.model_copy(update={"jobs": (*live.jobs, *waiting)})
    problems += [
        problem.message
        for problem in inconsistencies(whole)
        if problem.location[0] == "jobs" and int(problem.location[1]) >= len(live.jobs)
    ]
    if problems:
        listed = "".join(f"\n{indent(problem, _INDENT)}" for problem in problems[:_NAMED_AT_MOST])
        more = len(problems) - _NAMED_AT_MOST
        listed += f"\n  … and {more} more" if more > 0 else ""
        raise PlannerError(
            f"the cluster takes none of these jobs:{listed}\nCorrect them and submit all of them again."
        )
    for job in jobs:
        tables.add_job(job)


def fail(tables: Tables, name: str) -> tuple[str, ...]:
    """A node is down; the jobs that were on it wait again, as if they had never started. Their names."""
    node = _node(tables, name)
    if not node.ready:
        raise PlannerError(
            f"expected a node that is up, found {name} down already.\n"
            f"`gpuplan simulated return {name}` brings it back."
        )
    stopped = tables.jobs_on(name)
    for job in filter(None, map(tables.job, stopped)):
        tables.put_running(job, None, ends_at=None)
    tables.put_node(node.model_copy(update={"ready": False}))
    return stopped


def bring_back(tables: Tables, name: str) -> None:
    """A node that was down takes jobs again."""
    node = _node(tables, name)
    if node.ready:
        raise PlannerError(f"expected a node that is down, found {name} up.\nThere is nothing to bring back.")
    tables.put_node(node.model_copy(update={"ready": True}))


def _node(tables: Tables, name: str) -> Node:
    node = tables.node(name)
    if node is None:
        raise PlannerError(
            f"expected a node of the cluster, found none named {name!r}.\n"
            "`gpuplan snapshot --from simulated` lists them."
        )
    return node
