"""
Baselines: scheduling rules of the literature, for comparison with plans.

Each rule uses the planner's information: a snapshot, the expected durations, and the attained service of each
job. It ignores weights, and priorities unless its name says otherwise. Placement rules hold as in a plan. The
policy's preemption rules do not, since each baseline preempts as its paper says.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.planner.simulate.baselines import orders, places
from gpuplan.planner.simulate.baselines.backfill import backfill
from gpuplan.planner.simulate.baselines.orders import (
    contenders,
    is_preemptible,
    max_min,
    may_yield_turn,
    serve_in_order,
    start_in_order,
)
from gpuplan.planner.simulate.baselines.places import PlacedJobs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from gpuplan.models.placement import Placement
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.simulate.baselines.orders import Contender
    from gpuplan.planner.simulate.baselines.places import Scorer

    Rule: TypeAlias = Callable[[PlacedJobs, Sequence[Contender]], None]
    """Places pending jobs, given in order of arrival, and takes running jobs off."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """One rule, and its choice of nodes."""

    rule: Rule
    scorer: Scorer | None = None
    """None is the best fit of the greedy solver (see `solvers.state.node_scores`)."""


def decide(
    name: str, snapshot: Snapshot, policy: Policy, attained: Mapping[str, int]
) -> tuple[Placement, ...]:
    """
    Placements of all running jobs after a baseline's decision, by job.

    `attained` is the attained service by job, in thousandths of GPUs times seconds; missing jobs have 0.
    """
    baseline = baseline_of(name)
    places = PlacedJobs(snapshot, policy, baseline.scorer)
    baseline.rule(places, contenders(snapshot, policy, attained))
    return places.placements()


def baseline_of(name: str) -> Baseline:
    """
    The baseline with this name.

    Raises
    ------
    PlannerError
        There is none; the message lists all names.
    """
    if name not in BASELINES:
        raise PlannerError(f"expected a baseline among {', '.join(BASELINES)}; found {name!r}")
    return BASELINES[name]


def _first_come(places: PlacedJobs, jobs: Sequence[Contender], *, skipping: bool) -> None:
    start_in_order(places, jobs, skipping=skipping)


def _shortest_job(places: PlacedJobs, jobs: Sequence[Contender]) -> None:
    start_in_order(places, sorted(jobs, key=orders.shortest), skipping=True)


def _by_priority(
    places: PlacedJobs,
    jobs: Sequence[Contender],
    *,
    rule: Rule,
    key: Callable[[Contender], orders.Key] | None = None,
) -> None:
    order = jobs if key is None else sorted(jobs, key=key)
    rule(places, sorted(order, key=lambda each: -each.job.priority))


def _preempting(
    places: PlacedJobs,
    jobs: Sequence[Contender],
    *,
    key: Callable[[Contender], orders.Key],
    stops: Callable[[Contender], bool] = is_preemptible,
) -> None:
    serve_in_order(places, sorted(jobs, key=key), stops)


def _dominant_share(places: PlacedJobs, jobs: Sequence[Contender]) -> None:
    waiting = [each for each in jobs if not each.running]
    start_in_order(places, orders.by_dominant_share(places, jobs, waiting), skipping=True)


_WAITING: Final[Rule] = partial(_first_come, skipping=False)
_EASY: Final[Rule] = partial(backfill, depth=1)
_SKIPPING: Final[Rule] = partial(_first_come, skipping=True)

BASELINES: Final[dict[str, Baseline]] = {
    "fifo": Baseline(_WAITING),
    "fifo-skip": Baseline(_SKIPPING),
    "easy": Baseline(_EASY),
    "conservative": Baseline(partial(backfill, depth=None)),
    "sjf": Baseline(_shortest_job),
    "priority-fifo": Baseline(partial(_by_priority, rule=_WAITING)),
    "priority-easy": Baseline(partial(_by_priority, rule=_EASY)),
    "priority-sjf": Baseline(partial(_by_priority, rule=_SKIPPING, key=orders.shortest)),
    "srpt": Baseline(partial(_preempting, key=orders.shortest_remaining)),
    "srsf": Baseline(partial(_preempting, key=orders.smallest_remaining_service)),
    "lrpt": Baseline(partial(_preempting, key=orders.longest_remaining, stops=may_yield_turn)),
    "las": Baseline(partial(_preempting, key=orders.least_attained, stops=may_yield_turn)),
    "least-slack": Baseline(partial(_preempting, key=orders.least_slack, stops=may_yield_turn)),
    "max-min": Baseline(max_min),
    "drf": Baseline(_dominant_share),
    "first-fit": Baseline(_SKIPPING, places.first_fit),
    "best-fit": Baseline(_SKIPPING, places.best_fit),
    "most-allocated": Baseline(_SKIPPING, places.most_allocated),
    "least-allocated": Baseline(_SKIPPING, places.least_allocated),
    "requested-to-capacity-ratio": Baseline(_SKIPPING, places.requested_to_capacity_ratio),
}
"""By name, in the order of docs/simulation.md."""
