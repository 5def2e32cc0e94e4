"""
What a simulation found, as data: scores and series of each run, for screens, files and reports.

A figure over jobs that are not over yet says so: it is then no more than a lower bound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.units import Timestamp

if TYPE_CHECKING:
    import pandas as pd

SIMULATION_FORMAT: Final = "1.0"

_Count = Annotated[int, Field(ge=0)]


class Figure(Noun):
    """A value over jobs."""

    value: float
    """In the unit of the score."""
    at_least: bool = False
    """It can only be larger: jobs that decide it had not come so far when the simulation ended."""


class Distribution(Noun):
    """Mean and percentiles (nearest rank) over jobs."""

    mean: Figure
    """The arithmetic mean."""
    p50: Figure
    """The median."""
    p95: Figure
    """95 of 100 jobs have no more."""
    p99: Figure
    """99 of 100 jobs have no more."""


class Scorecard(Noun):
    """
    All scores of a run.

    Scored jobs are those that were submitted in the simulation or waited at its start and were not held.
    Waiting, completion and slowdown count from their submission; times are in seconds.
    """

    jobs: _Count
    """Scored jobs; each is finished, killed, running or waiting at the end."""
    finished: _Count
    """Scored jobs that have ended by themselves."""
    killed: _Count
    """Scored jobs that ran longer than their plan allowed, and are gone."""
    running: _Count
    """Scored jobs that run at the end."""
    waiting: _Count
    """Scored jobs that wait at the end."""
    held: _Count
    """Jobs kept from starting by a user; not scored."""
    not_submitted: _Count
    """Jobs of the trace whose time had not come when the simulation ended."""
    finished_per_hour: float
    """Finished jobs over the hours of the simulation."""
    wait: Distribution | None
    """From submission to the first start; None without jobs, as what follows."""
    worth_wait: Figure | None
    """Mean of the same, each job counting weight · (1 + priority) · GPUs, and at least 0.1 GPU."""
    completion: Distribution | None
    """From submission to the end, of jobs that were not killed."""
    slowdown: Distribution | None
    """Completion over the true duration, which counts for at least ten seconds; at least 1."""
    makespan: Figure | None
    """From the start of the simulation to the end of the last scored job."""
    finish_time_fairness_max: Figure | None
    """Largest finish-time fairness ρ of a job with GPUs that has finished (see docs/simulation.md)."""
    unfair_share: Figure | None
    """Part of the jobs with GPUs, killed ones left out, that have finished with a ρ above 1.05."""
    gpu_utilization: float
    """GPU-hours held by jobs, running ones from the start included, over GPU-hours there were."""
    gpu_hours: float
    """Held by jobs."""
    lost_gpu_hours: float
    """Of these, for work that was lost with a stop, as no checkpoint had saved it."""
    idle_gpu_hours: float
    """Of these, spent on coming back from checkpoints."""
    queue_mean: float
    """Waiting jobs after an epoch's plan, on average over the epochs."""
    queue_max: _Count
    """Most waiting jobs after any epoch's plan."""
    jain_mean: float
    """Jain's index of how far the queues' demands are met after an epoch's plan, on average."""
    jain_min: float
    """The least such index after any epoch's plan."""
    preemptions: _Count
    """Times that running jobs were stopped by a plan."""
    interruptions: _Count
    """Jobs stopped by failing nodes."""
    migrations: _Count
    """Times that running jobs were moved by a plan."""
    resizes: _Count
    """Times that running elastic jobs were shrunk or grown by a plan."""
    restarts: _Count
    """Times that jobs were stopped, moved or resized, failing nodes included: the sum of the four above."""
    deadline_jobs: _Count
    """Scored jobs with a deadline that was not after the simulation's end."""
    deadline_misses: _Count
    """Of these, those not finished by then."""
    cost: float
    """Nodes by the hour and tariffs, in the cluster's currency."""
    planning_seconds: float
    """Of all epochs together."""
    planning_seconds_mean: float
    """Of an epoch."""
    planning_seconds_max: float
    """Of the slowest epoch."""


class EpochFigures(Noun):
    """One epoch of a run: what its plan did, and how the world was just after it."""

    number: _Count
    """From 0."""
    at: Timestamp
    """The instant of the epoch."""
    submitted: _Count
    """Since the last epoch, as all that follows up to `interrupted`; the first has the jobs of the start."""
    finished: _Count
    """Jobs that ended by themselves."""
    killed: _Count
    """Jobs that ran longer than their plan allowed, and are gone."""
    interrupted: _Count
    """Jobs that failing nodes stopped."""
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
    """None of a baseline, which has none."""
    bound: int | None
    """Proven upper bound of the points of any plan; None if none is known."""
    solver: str
    """
    Whose plan it was, or the name of a baseline; `settled` if nothing had changed since the last plan and no
    other was made.
    """
    seconds: float = 0.0
    """To plan it, or for a baseline to decide."""


class Run(Noun):
    """One policy with one choice of solvers, over the whole trace."""

    name: str
    """What tells it apart from the others."""
    policy: str
    """Where the policy came from."""
    solver: str
    """Solver or baseline that decides."""
    scores: Scorecard
    """Figures of the whole run."""
    epochs: tuple[EpochFigures, ...]
    """In the order of time."""
    stopped: Literal["finished", "time", "stuck"]
    """Why it ended: nothing was left to do, its time was over, or nothing would have happened any more."""


class Simulation(Noun):
    """Runs over the same trace, side by side."""

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
    """Seconds from one epoch to the next; where epochs are at events, from one to the next at most."""
    at_events: bool = False
    """Epochs are where jobs come and end and nodes change, not at regular times."""
    nodes: _Count
    """Nodes at the start."""
    gpus: _Count
    """GPUs at the start, unhealthy ones included."""
    added_queues: tuple[str, ...] = ()
    """Queues of arriving jobs that the source does not have: they have no quota."""
    runs: tuple[Run, ...]
    """Each policy with each solver, then baselines, in the order in which they were given."""

    # pandas takes half a second to load, which only its tables pay for.
    def epoch_frame(self) -> pd.DataFrame:
        """One row for each epoch of each run: `run`, and the fields of `EpochFigures`."""
        from gpuplan.planner.simulate.scores.dataframes import series  # noqa: PLC0415 - see above

        return series(self)

    def score_frame(self) -> pd.DataFrame:
        """One row for each score of each run: `run`, `score`, `value`, and whether it is a lower bound."""
        from gpuplan.planner.simulate.scores.dataframes import scores  # noqa: PLC0415 - see above

        return scores(self)
