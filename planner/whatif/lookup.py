"""Resolve the subjects of a question: jobs of the snapshot by name, a job from a file, kinds of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.errors import BadInputError, InputProblem, Suggestions, truncated_names
from gpuplan.models.job import Job
from gpuplan.planner.sources.files import load_noun
from gpuplan.planner.text_format import node_size
from gpuplan.planner.whatif.grid.sensitivity import equivalent_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.grid.sensitivity import EquivalentNodes


def jobs_named(names: Sequence[str], snapshot: Snapshot, source: str) -> list[Job]:
    """
    Return jobs of a snapshot by name; messages name `source` as the snapshot's origin.

    Raises
    ------
    BadInputError
        With every name for which there is no job.
    """
    near, known = Suggestions(), snapshot.job_by_name
    problems = tuple(
        InputProblem(source, f"no job has the name {name!r}.{near.hint(name, known)}")
        for name in names
        if name not in known
    )
    if problems:
        raise BadInputError(problems)
    return [known[name] for name in dict.fromkeys(names)]


def read_job(path: str, snapshot: Snapshot) -> Job:
    """
    Read one job from a file, for a question about it beside the jobs of a snapshot.

    Raises
    ------
    BadInputError
        The file is not a job, or the job names a queue that the snapshot does not have.
    """
    job = load_noun(path, Job)
    queues = {queue.name for queue in snapshot.queues}
    if job.queue not in queues:
        hint = Suggestions().hint(job.queue, queues)
        message = f"job {job.name!r} is in queue {job.queue!r}, which the snapshot does not have.\n"
        raise BadInputError(
            (InputProblem(path, f"{message}  Known: {truncated_names(queues) or 'none'}.{hint}"),)
        )
    return job


def equivalent_nodes_of(names: Sequence[str], snapshot: Snapshot, source: str) -> list[EquivalentNodes]:
    """
    Return the kinds of the nodes with these names; all kinds if there are no names.

    Raises
    ------
    BadInputError
        With every name for which there is no node.
    """
    near, known = Suggestions(), snapshot.cluster.node_by_name
    problems = tuple(
        InputProblem(source, f"no node has the name {name!r}.{near.hint(name, known)}")
        for name in names
        if name not in known
    )
    if problems:
        raise BadInputError(problems)
    wanted = {node_size(known[name]) for name in names}
    return [kind for kind in equivalent_nodes(snapshot) if not wanted or kind.words in wanted]
