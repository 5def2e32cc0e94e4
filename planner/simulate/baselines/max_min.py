"""Max-min: jobs take turns so that each gets its part of time from Gavel's linear program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.units import MILLI
from gpuplan.planner.simulate.baselines.contenders import counted_gpus, may_yield_turn
from gpuplan.planner.simulate.baselines.orders import serve_in_order
from gpuplan.solvers.exact.max_min import max_min_shares

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.problem.jobs import JobClass
    from gpuplan.planner.simulate.baselines.contenders import Contender
    from gpuplan.planner.simulate.baselines.places import PlacedJobs


def max_min(places: PlacedJobs, jobs: Sequence[Contender]) -> None:
    """
    Serve by share ÷ received part of time, the largest first, as Gavel does in each round.

    The received part is attained service ÷ (GPUs · age). A job tries the GPU model with its largest share
    first. Jobs without GPUs, or without a model that fits them, come last.
    """
    models, capacity = _capacity(places)
    known = [(each, job_class) for each in jobs if (job_class := places.class_of(each.name)) is not None]
    speeds = [_speeds(each, job_class, models, capacity) for each, job_class in known]
    sharing = [index for index, speed in enumerate(speeds) if any(speed)]
    shares: dict[str, list[float]] = {}
    if sharing:
        gpus = np.array([counted_gpus(known[index][0]) for index in sharing])
        found = max_min_shares(np.array([speeds[index] for index in sharing]), gpus, np.array(capacity))
        shares = {known[index][0].name: row for index, row in zip(sharing, found.tolist(), strict=True)}

    def urgency(each: Contender) -> float:
        given = max(1, each.attained) / max(1, each.gpu_milli * max(1, each.age))
        return sum(shares.get(each.name, ())) / given

    for name, parts in shares.items():
        places.prefer(name, dict(zip(models, parts, strict=True)))
    serve_in_order(places, sorted(jobs, key=lambda each: (-urgency(each), each.arrival)), may_yield_turn)


def _capacity(places: PlacedJobs) -> tuple[list[str], list[float]]:
    """GPU models, and the number of usable GPUs of each."""
    total: dict[str, int] = {}
    for group in places.problem.groups:
        if group.gpu_model is not None and group.pool is None:
            milli = sum(sum(places.problem.nodes[node].gpus) for node in group.nodes)
            total[group.gpu_model] = total.get(group.gpu_model, 0) + milli
    models = sorted(model for model, milli in total.items() if milli)
    return models, [total[model] / MILLI for model in models]


def _speeds(
    each: Contender, job_class: JobClass, models: Sequence[str], capacity: Sequence[float]
) -> list[float]:
    """Speed of a job on each model, relative to its fastest; 0 if it cannot run there."""
    possible = {option.gpu_model for option in job_class.options}
    return [
        each.job.speed_milli(model) / MILLI if model in possible and counted_gpus(each) <= gpus else 0.0
        for model, gpus in zip(models, capacity, strict=True)
    ]
