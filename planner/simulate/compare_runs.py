"""
Comparison of several policies and solvers over the same trace.

Each run has a separate process, so that a keyboard interrupt does not end only the search of one epoch.
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.analysis.policy_changes import with_options
from gpuplan.planner.simulate.outcome import SimulatedRun, Simulation
from gpuplan.planner.simulate.replay import Replayed, ReplayProgress, replay
from gpuplan.planner.simulate.run_options import SOLVER_NAMES
from gpuplan.planner.simulate.trace import Physics, make_trace
from gpuplan.planner.sources.traces.arrivals import read_arrivals, read_outages
from gpuplan.solvers.worker import run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.simulate.run_options import EpochClock
    from gpuplan.planner.simulate.trace import Estimates, Trace, TraceWindow


if TYPE_CHECKING:
    Watch: TypeAlias = Callable[[int, ReplayProgress], None]
    """Called from any thread with the number of the case and its progress."""

_ENTRY: Final = "gpuplan.planner.simulate.compare_runs:run"
_LONGEST: Final = 30 * 24 * 3600.0
"""Time limit of a run in seconds."""


@dataclass(frozen=True, slots=True)
class RunCase:
    """Specification of one run."""

    name: str
    """Displayed name."""
    place: str
    """Source of the policy."""
    solver: str
    policy: Policy
    baseline: str | None = None
    """Name of the baseline that replaces the planner, if any."""


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that ended with an error message."""

    message: str


def run_all_cases(
    trace: Trace,
    cases: Sequence[RunCase],
    clock: EpochClock,
    *,
    seed: int,
    at_a_time: int,
    watch: Watch = lambda _case, _progress: None,
) -> list[Replayed]:
    """
    Make all runs, `at_a_time` in parallel, and return them in the order of the cases.

    Raises
    ------
    PlannerError
        A run failed; the others are cancelled.
    """
    given_up = Event()

    def made(number: int) -> Replayed:
        def listen(message: object) -> None:
            if given_up.is_set():
                raise _GivenUpError
            if isinstance(message, ReplayProgress):
                watch(number, message)

        case = cases[number]
        outcome = run_in_child(_ENTRY, (trace, case.policy, clock, seed, case.baseline), _LONGEST, listen)
        if isinstance(outcome.last, Replayed):
            return outcome.last
        fault = outcome.last.message if isinstance(outcome.last, FailedRun) else outcome.failure
        raise PlannerError(f"run {case.name}: {fault}")

    with ThreadPoolExecutor(at_a_time) as threads:
        runs = [threads.submit(made, number) for number in range(len(cases))]
        try:
            wait(runs, return_when=FIRST_EXCEPTION)
            for run in runs:
                if run.done():
                    run.result()
            return [run.result() for run in runs]
        finally:
            given_up.set()
            threads.shutdown(cancel_futures=True)


def build_simulation(
    trace: Trace,
    cases: Sequence[RunCase],
    found: Sequence[Replayed],
    clock: EpochClock,
    *,
    source: str,
    arrivals: str | None,
    seed: int,
) -> Simulation:
    """All runs as one document; `source` and `arrivals` are the sources of the trace."""
    nodes = trace.start.cluster.nodes
    return Simulation(
        source=source,
        arrivals=arrivals,
        seed=seed,
        began=trace.start.taken_at,
        every=clock.every,
        at_events=clock.at_events,
        nodes=len(nodes),
        gpus=sum(node.gpu_count for node in nodes),
        added_queues=trace.added_queues,
        runs=tuple(
            SimulatedRun(
                name=case.name,
                policy=case.place,
                solver=case.solver,
                scores=each.scores,
                epochs=each.epochs,
                stopped=each.stopped,
            )
            for case, each in zip(cases, found, strict=True)
        ),
    )


def run(
    trace: Trace,
    policy: Policy,
    clock: EpochClock,
    seed: int,
    baseline: str | None,
    report: Callable[[object], None],
) -> Replayed | FailedRun:
    """Make one run in this process, and report its progress."""
    try:
        return replay(trace, policy, clock, seed=seed, baseline=baseline, watch=report)
    except PlannerError as error:
        return FailedRun(str(error))


class _GivenUpError(Exception):
    """The run is cancelled, since another one failed."""


# What a simulation is made of: the runs to make, and the trace that all of them replay.


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
    mean_to_failure: int = 0,
    seed: int,
) -> Trace:
    """
    All that happens in every run; delays are those that the policy states, times are in seconds.

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
        physics=Physics.of(policy, checkpoint_every, mean_to_failure=mean_to_failure, seed=seed),
        place=str(arrivals),
    )
