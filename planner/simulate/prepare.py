"""What a simulation is made of: the runs to make, and the trace that all of them replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuplan.planner.search_options import with_options
from gpuplan.planner.simulate.compare_runs import RunCase
from gpuplan.planner.simulate.names import SOLVER_NAMES
from gpuplan.planner.simulate.trace import Physics, make_trace
from gpuplan.planner.sources.traces.arrivals import read_arrivals
from gpuplan.planner.sources.traces.outages import read_outages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.simulate.trace import Estimates, Trace, TraceWindow


def cases_of(
    policies: Sequence[tuple[str, Policy]],
    solvers: Sequence[str],
    *,
    time_limit: int | None,
    deterministic: bool,
) -> list[RunCase]:
    """
    Each policy with each solver, and each baseline once, named by what tells them apart.

    A policy comes with its place, such as its file; `time_limit` is in milliseconds for each epoch.
    """
    planners = [name for name in solvers if name in SOLVER_NAMES]
    baselines = [name for name in solvers if name not in SOLVER_NAMES]
    stems = [Path(place).stem for place, _ in policies]
    cases = []
    for (place, policy), stem in zip(policies, stems, strict=True):
        short = place if stems.count(stem) > 1 else stem
        for solver in planners:
            name = solver if len(policies) == 1 else short if len(planners) == 1 else f"{short} {solver}"
            chosen = with_options(policy, time_limit, solver, deterministic=deterministic)
            cases.append(RunCase(name, place, solver, chosen))
    # A baseline heeds no policy but for what may be expected of durations: that of the first is as good.
    place, policy = policies[0]
    return [*cases, *(RunCase(name, place, name, policy, baseline=name) for name in baselines)]


def trace_of(
    snapshot: Snapshot,
    policy: Policy,
    *,
    arrivals: Path | None,
    outages: Path | None,
    window: TraceWindow,
    estimates: Estimates,
    checkpoint_every: int,
    seed: int,
) -> Trace:
    """
    All that happens in every run; delays are those that the policy states.

    Raises
    ------
    BadInputError
        With all problems of the files, or all that makes arrivals and snapshot contradict each other.
    """
    return make_trace(
        snapshot,
        () if arrivals is None else read_arrivals(arrivals, snapshot.cluster, seed=seed),
        window=window,
        estimates=estimates,
        outages=() if outages is None else read_outages(outages, snapshot.cluster),
        physics=Physics.of(policy, checkpoint_every),
        place=str(arrivals),
    )
