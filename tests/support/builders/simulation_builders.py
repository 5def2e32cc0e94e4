"""Simulations made by hand."""

from __future__ import annotations

from datetime import timedelta
from types import NoneType
from typing import get_args

from gpuplan.planner.simulate.outcome import (
    Distribution,
    EpochFigures,
    Scorecard,
    ScoreValue,
    SimulatedRun,
    Simulation,
)
from tests.support.builders.build import NOW


def nothing(noun):
    """A value for each field of a noun: none where there may be none, else 0."""
    fields = noun.model_fields.items()
    return {name: None if NoneType in get_args(field.annotation) else 0 for name, field in fields}


def distribution(mean, p50, p95, p99, *, at_least=False):
    """Of jobs some of which are not over, `at_least` says: mean and p99 are then lower bounds."""
    return Distribution(
        mean=ScoreValue(value=mean, at_least=at_least),
        p50=ScoreValue(value=p50),
        p95=ScoreValue(value=p95),
        p99=ScoreValue(value=p99, at_least=at_least),
    )


WAIT = distribution(600, 120, 3_600, 7_200, at_least=True)


def scorecard(**more):
    return Scorecard(**nothing(Scorecard) | {"jobs": 12, "finished": 9, "wait": WAIT} | more)


def epoch(number, **more):
    made = {"number": number, "at": NOW + timedelta(minutes=10 * number), "solver": "milp"}
    return EpochFigures(**nothing(EpochFigures) | made | more)


EPOCHS = tuple(
    epoch(number, submitted=number % 3, waiting=9 - number, gpu_allocation_ratio=0.1 * number)
    for number in range(9)
)


def run(name, *, epochs=EPOCHS, **scores):
    return SimulatedRun(
        name=name,
        policy="policy.yaml",
        solver=name,
        scores=scorecard(**scores),
        epochs=epochs,
        stopped="finished",
    )


def simulation(*runs, **more):
    defaults = {"source": "scenarios/small", "arrivals": None, "seed": 0, "began": NOW, "every": 600}
    chosen = runs or (run("greedy"), run("milp", finished=11, running=1))
    return Simulation(**defaults | {"nodes": 2, "gpus": 16, "runs": chosen} | more)
