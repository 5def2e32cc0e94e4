"""Results of a simulation as pandas data frames, for files and further analysis."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from gpuplan.models.units import print_timestamp
from gpuplan.planner.simulate.outcome import Distribution, EpochFigures, ScoreValue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.planner.simulate.outcome import Scorecard, Simulation


_Score: TypeAlias = tuple[str, float, bool]


def series(simulation: Simulation) -> pd.DataFrame:
    """One row for each epoch of each run."""
    rows = [
        {"run": run.name} | epoch.model_dump() | {"at": print_timestamp(epoch.at)}
        for run in simulation.runs
        for epoch in run.epochs
    ]
    return pd.DataFrame(rows, columns=["run", *EpochFigures.model_fields])


def scores(simulation: Simulation) -> pd.DataFrame:
    """One row for each score of each run, and whether it is a lower bound."""
    rows = [(run.name, *score) for run in simulation.runs for score in _scores(run.scores)]
    return pd.DataFrame(rows, columns=["run", "score", "value", "at_least"])


def _scores(card: Scorecard) -> Iterator[_Score]:
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
