"""
Contest: several policies and solvers over the same trace, side by side.

Each run is made in a process of its own, where an interruption cannot be taken for the wish to end the search
of one epoch.
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.simulate.outcome import Run, Simulation
from gpuplan.planner.simulate.replay import Progress, Replayed, replay
from gpuplan.solvers.worker import run_apart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from gpuplan.models.policy.policy import Policy
    from gpuplan.planner.simulate.clock import Clock
    from gpuplan.planner.simulate.trace import Trace

    Watch: TypeAlias = Callable[[int, Progress], None]
    """Is told, by some thread, the number of the case and how far it is."""

_ENTRY: Final = "gpuplan.planner.simulate.compare_runs:run"
_LONGEST: Final = 30 * 24 * 3600.0
"""Seconds that a run may take."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run to be made."""

    name: str
    """As it is shown."""
    place: str
    """Where the policy came from."""
    solver: str
    policy: Policy
    baseline: str | None = None
    """The baseline that decides instead of the planner."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A run that ended with a message."""

    message: str


def hold(
    trace: Trace,
    cases: Sequence[Case],
    clock: Clock,
    *,
    seed: int,
    at_a_time: int,
    watch: Watch = lambda _case, _progress: None,
) -> list[Replayed]:
    """
    Make all runs, so many at a time, and return them in the order of the cases.

    Raises
    ------
    PlannerError
        A run failed; the others are given up.
    """
    given_up = Event()

    def made(number: int) -> Replayed:
        def listen(message: object) -> None:
            if given_up.is_set():
                raise _GivenUpError
            if isinstance(message, Progress):
                watch(number, message)

        case = cases[number]
        outcome = run_apart(_ENTRY, (trace, case.policy, clock, seed, case.baseline), _LONGEST, listen)
        if isinstance(outcome.last, Replayed):
            return outcome.last
        fault = outcome.last.message if isinstance(outcome.last, Failed) else outcome.failure
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


def side_by_side(
    trace: Trace,
    cases: Sequence[Case],
    found: Sequence[Replayed],
    clock: Clock,
    *,
    source: str,
    arrivals: str | None,
    seed: int,
) -> Simulation:
    """All runs as one document; `source` and `arrivals` are where the trace came from."""
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
            Run(
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
) -> Replayed | Failed:
    """Make one run in this process, reporting how far it is."""
    try:
        return replay(trace, policy, clock, seed=seed, baseline=baseline, watch=report)
    except PlannerError as error:
        return Failed(str(error))


class _GivenUpError(Exception):
    """Nobody waits for the run any more."""
