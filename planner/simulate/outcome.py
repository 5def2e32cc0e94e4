"""
Results of a simulation as data: scores and epoch series of each run, for screens, files and reports.

A figure that depends on jobs that are not over is marked as a lower bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Timestamp, print_timestamp

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

SIMULATION_FORMAT: Final = "1.0"

_Count = Annotated[int, Field(ge=0)]


class ScoreValue(Noun):
    """A value over jobs."""

    value: float
    """In the unit of the score."""
    at_least: bool = False
    """True if `value` is a lower bound: it depends on jobs that were not over at the simulation's end."""


class Distribution(Noun):
    """Mean and percentiles (nearest rank) over jobs."""

    mean: ScoreValue
    """The arithmetic mean."""
    p50: ScoreValue
    """The median."""
    p95: ScoreValue
    """95 of 100 jobs have no more."""
    p99: ScoreValue
    """99 of 100 jobs have no more."""


class Scorecard(Noun):
    """
    All scores of a run.

    Scored jobs are those submitted during the simulation, or pending at its start and not held. Wait,
    completion and slowdown count from the submission; times are in seconds.
    """

    jobs: _Count
    """Scored jobs; each is finished, killed, running or waiting at the end."""
    finished: _Count
    """Scored jobs that have ended by themselves."""
    killed: _Count
    """Scored jobs that ran longer than their plan allowed, or failed and are not tried again."""
    running: _Count
    """Scored jobs that run at the end."""
    waiting: _Count
    """Scored jobs that wait at the end."""
    held: _Count
    """Jobs that a user holds; not scored."""
    not_submitted: _Count
    """Jobs of the trace that were not yet submitted at the simulation's end."""
    finished_per_hour: float
    """Finished jobs over the hours of the simulation."""
    wait: Distribution | None
    """From submission to the first start; None without jobs, as are the next fields."""
    worth_wait: ScoreValue | None
    """Mean wait, weighted with weight · (1 + priority) · GPUs, where GPUs are at least 0.1."""
    completion: Distribution | None
    """From submission to the end, of jobs that were not killed."""
    slowdown: Distribution | None
    """Completion over the true duration, which counts as at least ten seconds; at least 1."""
    makespan: ScoreValue | None
    """From the start of the simulation to the end of the last scored job."""
    finish_time_fairness_max: ScoreValue | None
    """Largest finish-time fairness ρ of a job with GPUs that has finished (see docs/simulation.md)."""
    unfair_share: ScoreValue | None
    """Part of the jobs with GPUs, without killed ones, that have finished with a ρ above 1.05."""
    gpu_utilization: float
    """GPU-hours held by jobs, including jobs that ran at the start, over available GPU-hours."""
    gpu_hours: float
    """GPU-hours held by jobs."""
    lost_gpu_hours: float
    """Part of `gpu_hours` with work that was lost in a stop, since no checkpoint had saved it."""
    idle_gpu_hours: float
    """Part of `gpu_hours` spent on restoring checkpoints."""
    queue_mean: float
    """Pending jobs after an epoch's plan, averaged over the epochs."""
    queue_max: _Count
    """Most waiting jobs after any epoch's plan."""
    jain_mean: float
    """Jain's index of the queues' met demands after an epoch's plan, averaged over the epochs."""
    jain_min: float
    """The least such index after any epoch's plan."""
    preemptions: _Count
    """Times that running jobs were stopped by a plan."""
    interruptions: _Count
    """Times that jobs were stopped by failing nodes, or failed and were tried again."""
    migrations: _Count
    """Times that running jobs were moved by a plan."""
    resizes: _Count
    """Times that running elastic jobs were shrunk or grown by a plan."""
    restarts: _Count
    """Times that jobs were preempted, interrupted, migrated or resized: the sum of the four above."""
    deadline_jobs: _Count
    """Scored jobs with a deadline by the simulation's end."""
    deadline_misses: _Count
    """Jobs of `deadline_jobs` that were not finished by their deadline."""
    cost: float
    """Hourly prices of nodes and tariffs, in the cluster's currency."""
    planning_seconds: float
    """Planning time of all epochs together."""
    planning_seconds_mean: float
    """Mean planning time of an epoch."""
    planning_seconds_max: float
    """Planning time of the slowest epoch."""


class EpochFigures(Noun):
    """One epoch of a run: the effects of its plan, and the state of the world directly after it."""

    number: _Count
    """From 0."""
    at: Timestamp
    """The instant of the epoch."""
    submitted: _Count
    """Since the last epoch, as the fields up to `interrupted`; the first epoch has the initial jobs."""
    finished: _Count
    """Jobs that ended by themselves."""
    killed: _Count
    """Jobs that ran longer than their plan allowed, or failed and are not tried again."""
    interrupted: _Count
    """Jobs that failing nodes stopped, or that failed and wait again."""
    started: _Count
    """Jobs that this epoch's plan starts."""
    preempted: _Count
    """Running jobs that it stops."""
    migrated: _Count
    """Running jobs that it moves."""
    resized: _Count
    """Running elastic jobs that it shrinks or grows."""
    running: _Count
    """Jobs that run after the plan."""
    waiting: _Count
    """Jobs that wait after the plan, held ones left out."""
    gpu_allocation_ratio: float
    """GPUs held over GPUs usable, as all ratios from 0 to 1 (docs/plan-format.md defines them)."""
    fragmentation_ratio: float
    """Part of the free GPUs on which no replica of the reference gang fits."""
    jain_index: float
    """Jain's fairness index of the queues."""
    hourly_cost: float
    """Cost of the nodes, in the cluster's currency an hour."""
    objective: int | None
    """None for a baseline, which has no objective."""
    bound: int | None
    """Proven upper bound of the points of any plan; None if none is known."""
    solver: str
    """
    Solver of the plan, or the name of a baseline; `settled` if nothing changed since the last plan and no new
    plan was made.
    """
    seconds: float = 0.0
    """Time to plan, or of a baseline to decide."""


class SimulatedRun(Noun):
    """Result of one policy with one choice of solvers, over the whole trace."""

    name: str
    """What tells it apart from the others."""
    policy: str
    """Source of the policy."""
    solver: str
    """Solver or baseline that decides."""
    scores: Scorecard
    """Figures of the whole run."""
    epochs: tuple[EpochFigures, ...]
    """In the order of time."""
    stopped: Literal["finished", "time", "stuck"]
    """Why it ended: all jobs were over, its time was over, or no further progress was possible."""


class Simulation(Noun):
    """Runs over the same trace."""

    format_version: Literal["1.0"] = SIMULATION_FORMAT
    """Version of the format of this document."""
    source: str
    """Where the snapshot came from."""
    arrivals: str | None
    """Where the jobs came from that are submitted by and by; None if there are none."""
    seed: int
    """Of solvers, drawn jobs and wrong estimates."""
    began: Timestamp
    """The instant of the first epoch."""
    every: Annotated[int, Field(ge=1)]
    """Seconds between epochs; with `at_events` the longest time between two."""
    at_events: bool = False
    """True if epochs are at arrivals and ends of jobs and at node changes, not at regular times."""
    nodes: _Count
    """Nodes at the start."""
    gpus: _Count
    """GPUs at the start, unhealthy ones included."""
    added_queues: tuple[str, ...] = ()
    """Queues of arriving jobs that the source lacks; they have no quota."""
    runs: tuple[SimulatedRun, ...]
    """Each policy with each solver, then baselines, in the order in which they were given."""

    # pandas takes half a second to load, which only its tables pay for.
    def epoch_frame(self) -> pd.DataFrame:
        """One row for each epoch of each run: `run`, and the fields of `EpochFigures`."""
        import pandas as pd  # noqa: PLC0415 - see above

        rows = [
            {"run": run.name} | epoch.model_dump() | {"at": print_timestamp(epoch.at)}
            for run in self.runs
            for epoch in run.epochs
        ]
        return pd.DataFrame(rows, columns=["run", *EpochFigures.model_fields])

    def score_frame(self) -> pd.DataFrame:
        """One row for each score of each run: `run`, `score`, `value`, and whether it is a lower bound."""
        import pandas as pd  # noqa: PLC0415 - see above

        rows = [(run.name, *score) for run in self.runs for score in _scores(run.scores)]
        return pd.DataFrame(rows, columns=["run", "score", "value", "at_least"])


def _scores(card: Scorecard) -> Iterator[tuple[str, float, bool]]:
    """Scores by name; a distribution over jobs gives one score for each of its parts."""
    for name in type(card).model_fields:
        value = getattr(card, name)
        if isinstance(value, Distribution):
            for part in Distribution.model_fields:
                figure = getattr(value, part)
                yield f"{name}_{part}", figure.value, figure.at_least
        elif isinstance(value, ScoreValue):
            yield name, value.value, value.at_least
        elif value is not None:
            yield name, value, False
