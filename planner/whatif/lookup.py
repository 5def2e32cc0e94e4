"""What a question is about: jobs of the snapshot by name, or one from a file; kinds of its nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.job import Job
from gpuplan.models.validation.suggestions import NearMisses, listed
from gpuplan.planner.formatting import node_size
from gpuplan.planner.sources.files import load_noun
from gpuplan.planner.whatif.grid.sensitivity import kinds_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.whatif.grid.sensitivity import Kind


def jobs_named(names: Sequence[str], snapshot: Snapshot, source: str) -> list[Job]:
    """
    Jobs of a snapshot; `source` is where that is from, for messages.

    Raises
    ------
    BadInputError
        With every name that no job has.
    """
    near, known = NearMisses(), snapshot.job_by_name
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
    A job from a file of its own, to be asked about beside a snapshot's.

    Raises
    ------
    BadInputError
        The file is not a job's, or names a queue that the snapshot does not have.
    """
    job = load_noun(path, Job)
    queues = {queue.name for queue in snapshot.queues}
    if job.queue not in queues:
        hint = NearMisses().hint(job.queue, queues)
        message = f"job {job.name!r} is in queue {job.queue!r}, which the snapshot does not have.\n"
        raise BadInputError((InputProblem(path, f"{message}  Known: {listed(queues) or 'none'}.{hint}"),))
    return job


def kinds_like(names: Sequence[str], snapshot: Snapshot, source: str) -> list[Kind]:
    """
    Kinds of the nodes with these names; all kinds without any.

    Raises
    ------
    BadInputError
        With every name that no node has.
    """
    near, known = NearMisses(), snapshot.cluster.node_by_name
    problems = tuple(
        InputProblem(source, f"no node has the name {name!r}.{near.hint(name, known)}")
        for name in names
        if name not in known
    )
    if problems:
        raise BadInputError(problems)
    wanted = {node_size(known[name]) for name in names}
    return [kind for kind in kinds_of(snapshot) if not wanted or kind.words in wanted]
