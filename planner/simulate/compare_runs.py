"""
Comparison of several policies and solvers over the same trace.

Each run has a separate process, so that a keyboard interrupt does not end only the search of one epoch.
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.simulate.outcome import SimulatedRun, Simulation
from gpuplan.planner.simulate.replay import Replayed, ReplayProgress, replay
from gpuplan.solvers.worker import run_in_child

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.simulate.clock import Clock
    from gpuplan.planner.simulate.trace import Trace

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
    clock: Clock,
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
    clock: Clock,
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
    clock: Clock,
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
