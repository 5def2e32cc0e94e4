"""
`python -m benchmarks ablate`: what each improver earns, as the loss of objective without it.

An improver is a part of the search that may be left out without breaking a rule: a field of type bool in
`SearchParams`. Each case is planned with all improvers, and again without each of them. The work of solvers
is fixed (`--ticks`), so that the loss does not depend on the machine; improvers that run only where the clock
limits the work are measured within the case's time limit instead.

The loss is a share of what the plan with all improvers brings beyond changing nothing: the objective itself
may be close to zero, where guarantees are not met.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.fresh import fresh
from benchmarks.instances import MIXES, Instance
from benchmarks.markdown import percent, table
from benchmarks.records import append
from benchmarks.size_table import ADMISSION_INSTANCES, ODD_INSTANCES, SIZE_INSTANCES
from gpuplan.models.plan.solution import DesiredState
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.epoch import limits_of
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers import portfolio
from gpuplan.solvers.params.search import SearchParams

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from benchmarks.records import Record

NAME: Final = "ablate"

_LATER: Final = (Instance("S", 5, slots=12), Instance("M", 10, slots=12), Instance("L", 60, slots=12))

INSTANCES: Final = (
    *SIZE_INSTANCES,
    *_LATER,
    *ADMISSION_INSTANCES,
    *ODD_INSTANCES,
    *(Instance(name, 10) for name in MIXES),
    *(Instance(each.name, each.seconds, each.slots, exact=False) for each in (*SIZE_INSTANCES, *_LATER)),
)

WORTHWHILE: Final = 0.001
"""Loss, as a ratio, that an improver must prevent in at least one case; what earns less goes."""

_SAFETY: Final = 100
"""
With fixed work the clock is only a safety stop, at this many times the time limit: each priority has only a
part of that, and must not be stopped on a busy machine.
"""


@dataclass(frozen=True)
class Improver:
    """A part of the search that may be left out."""

    parameter: str
    """Its switch in `SearchParams`, as a path."""
    over_time: bool | None = None
    """True if it does nothing with a single slot, False if it does nothing with several."""
    clocked: bool = False
    """True if it runs only where the clock limits the work."""

    def applies_to(self, instance: Instance) -> bool:
        """True if it may change the plan of an instance."""
        return self.over_time is None or self.over_time == (instance.slots > 1)


IMPROVERS: Final = {
    "bulk preemption": Improver("placement.bulk_preemption.enabled", over_time=False),
    "single preemption": Improver("placement.preemption.enabled"),
    "list scheduling": Improver("placement.greedy.list_scheduling", over_time=True),
    "gangs first": Improver("placement.greedy.gangs_first", over_time=True),
    "resuming order": Improver("placement.greedy.resuming", over_time=True),
    "pull forward": Improver("placement.greedy.pull_forward", over_time=True),
    "second pass": Improver("placement.rounding.second_pass"),
    "meet floors": Improver("placement.rounding.meet_floors"),
    "swap repair": Improver("placement.rounding.swap_repair"),
    "gang covers": Improver("formulation.gang_covers"),
    "quota covers": Improver("formulation.quota_covers"),
    "stranded GPUs": Improver("formulation.stranded_gpu"),
    "near relaxation": Improver("exact.highs.near_relaxation"),
    "dive": Improver("exact.highs.dive", over_time=True),
    "rounded vertex": Improver("exact.run.place_vertex"),
    "intermediate answers": Improver("exact.run.place_intermediate", clocked=True),
    "answer repair": Improver("repair.enabled", over_time=False),
    "finer model": Improver("finer_model.enabled", over_time=False),
    "neighbourhoods": Improver("lns.enabled", over_time=False),
    "partition": Improver("partition.enabled", over_time=False),
    "column generation": Improver("column_generation.enabled", over_time=False, clocked=True),
}


def without(params: Any, parameter: str) -> Any:
    """Parameters with one switch off."""
    first, _, rest = parameter.partition(".")
    value = without(getattr(params, first), rest) if rest else False
    return replace(params, **{first: value})


def measure(
    instances: Iterable[Instance],
    names: Iterable[str],
    seeds: Iterable[int],
    *,
    ticks: int,
    log: Path | None = None,
) -> list[Record]:
    """Losses without each of the improvers, each case and seed in a new process."""
    found, chosen, numbers = list[dict[str, Any]](), tuple(names), tuple(seeds)
    for instance in instances:
        for seed in numbers:
            found += fresh(measure_one, replace(instance, seed=seed), chosen, ticks, log)
    return found


def measure_one(
    instance: Instance, names: tuple[str, ...], ticks: int, log: Path | None = None
) -> list[Record]:
    """The loss without each improver that applies to one instance; each is logged as soon as it is known."""
    planned: dict[bool, dict[str, Any]] = {}
    records = []
    for name in names:
        improver = IMPROVERS[name]
        if not improver.applies_to(instance):
            continue
        work = None if improver.clocked else ticks
        if improver.clocked not in planned:
            planned[improver.clocked] = plan(instance, SearchParams(), work)
        whole = planned[improver.clocked]
        less = plan(instance, without(SearchParams(), improver.parameter), work)
        lost = whole["objective"] - less["objective"]
        record = {
            "case": instance.title,
            "seed": instance.seed,
            "improver": name,
            "ticks": work,
            "loss": lost / max(1, whole["objective"] - whole["unchanged"]),
            "with": whole,
            "without": less,
        }
        append(log, NAME, record)
        records.append(record)
    return records


def plan(instance: Instance, params: SearchParams, ticks: int | None) -> dict[str, Any]:
    """Objective of the plan, which the verifier has counted, and how it was found."""
    snapshot, policy = instance.snapshot().canonical(), instance.policy()
    problem = build_problem(snapshot, policy)
    seconds = instance.seconds * (1 if ticks is None else _SAFETY)
    limits = replace(limits_of(policy, instance.seed), seconds=seconds, ticks=ticks, params=params)
    check = partial(verify_target, snapshot, policy)
    unchanged = check(DesiredState(snapshot.running_placements)).objective
    began = time.monotonic()
    solution = portfolio.solve(problem, snapshot.running_placements, limits, check)
    return {
        "objective": solution.objective,
        "unchanged": unchanged,
        "bound": solution.bound,
        "solver": solution.solver,
        "ended": str(solution.ended),
        "seconds": time.monotonic() - began,
    }


def tables(records: Iterable[Record]) -> str:
    """Median and worst loss by improver and case; then the improvers that earn too little in all of these."""
    losses: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    cases: dict[str, None] = {}
    for record in records:
        losses[record["improver"]][record["case"]].append(record["loss"])
        cases[record["case"]] = None
    rows = [[name, *(_cell(of.get(case, [])) for case in cases)] for name, of in losses.items()]
    shown = table(("without", *(f"{case}: median (worst)" for case in cases)), rows)
    idle = [
        name
        for name, of in losses.items()
        if max((loss for each in of.values() for loss in each), default=0.0) < WORTHWHILE
    ]
    return (
        f"{shown}\nLess than {percent(WORTHWHILE, 1)} in each of these cases: {', '.join(idle) or 'none'}.\n"
    )


def _cell(losses: list[float]) -> str:
    return f"{percent(median(losses), 3)} ({percent(max(losses), 3)})" if losses else "–"
