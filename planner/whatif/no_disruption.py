"""
A capacity question as a world for the production planner, in which no running job is disrupted.

It contains only the running jobs and the jobs asked about. Each of the latter is worth the same number of
points, and nothing else has a price except new nodes of pools, if any may be added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.affinity import LocalityPreference
from gpuplan.models.errors import BadInputError, InputProblem, Suggestions, require_known, truncated_names
from gpuplan.models.job import Job
from gpuplan.models.policy.policy import Ageing, Disruption, Policy, PoolPolicy, Prices, SizeBasis, Weights
from gpuplan.models.policy.settings import Goal, HorizonPolicy, Objective
from gpuplan.models.units import MILLI
from gpuplan.models.value.job_value import POINTS_PER_WEIGHT
from gpuplan.planner.sources.files import load_noun

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuplan.models.snapshot import Snapshot


def without_disruption(
    snapshot: Snapshot,
    policy: Policy,
    jobs: Iterable[Job],
    *,
    points: int,
    currency: int | None = None,
    scaling: int = 0,
) -> tuple[Snapshot, Policy]:
    """
    Return the snapshot with the running jobs and these jobs, each worth `points`, and the policy to plan it.

    Without a `currency` pools get no nodes; with one, a node costs its price in that plus `scaling`.
    """
    # The policy alone does not stop migrations off nodes that are to be drained.
    running = [job.model_copy(update={"preemptible": False}) for job in snapshot.jobs if job.running]
    asked = [_worth(job, points) for job in jobs]
    world = snapshot.model_copy(update={"jobs": (*running, *asked)}).canonical()
    prices = Prices(
        guarantee=0,
        nominal=0,
        disruption=0,
        migration=0,
        resize=0,
        repartition=0,
        switch_mode=0,
        domain=0,
        currency=currency or 0,
        scaling=scaling,
        drain=0,
    )
    budget = policy.budget.model_copy(update={"stop_gap": 0.0})
    rules = {
        "objective": Objective(goal=Goal.VALUE),
        "weights": Weights(basis=SizeBasis.JOB, ageing=Ageing(gain=0, cap=0)),
        "prices": prices,
        "disruption": Disruption(resize=False),
        "pools": PoolPolicy(scale_up=currency is not None, scale_down=False),
        "horizon": HorizonPolicy(),
        "budget": budget,
    }
    return world, policy.model_copy(update=rules)


def _worth(job: Job, points: int) -> Job:
    """The job reduced to its demand: minimum size, equal speed on all its GPU models, no time rules."""
    return job.model_copy(
        update={
            "running": None,
            "promise": None,
            "held": False,
            "priority": 0,
            "weight_milli": points * MILLI // POINTS_PER_WEIGHT,
            "gang": job.gang.model_copy(update={"maximum": job.gang.minimum}),
            "gpu_models": dict.fromkeys(job.gpu_models, MILLI),
            "locality": LocalityPreference(required=job.locality.required),
            "preferred_nodes": (),
            "datasets": (),
            "not_before": None,
            "retry": None,
            "deadline": None,
            "hard_deadline": False,
            "depends_on": (),
            "depends_on_at_least": None,
            "co_start": None,
        }
    )


# The jobs that such a question is about.


def jobs_named(names: Sequence[str], snapshot: Snapshot, source: str) -> list[Job]:
    """
    Return jobs of a snapshot by name; messages name `source` as the snapshot's origin.

    Raises
    ------
    BadInputError
        With every name for which there is no job.
    """
    known = snapshot.job_by_name
    require_known("job", names, known, source)
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
