"""
The block model of a whole problem, built once for all stages of priorities.

In the stage of a priority the columns of all jobs of lower priority are 0, and the floors of earlier stages
are rows; everything else is the same. So a stage need not build its model anew.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.priority import priority

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpuplan.models.formulation.decode import Aggregate, Batch
    from gpuplan.models.formulation.params import FormulationParams
    from gpuplan.models.formulation.rows import Formulation
    from gpuplan.models.problem.problem import Problem

HOLD_ENTRY: Final = "gpuplan.solvers.shared_model:hold_model"


class WholeModel:
    """
    The block model of a whole problem without floors, built when it is first needed.

    Another process that unpickles it gets the model of this name that it holds, or None.
    """

    def __init__(self, problem: Problem, params: FormulationParams, name: str = "") -> None:
        self.problem, self.params = replace(problem, floors=()), params
        self.name = name or uuid.uuid4().hex

    @cached_property
    def columns(self) -> Columns:
        """Its columns."""
        return Columns(self.problem, self.params)

    @cached_property
    def formulation(self) -> Formulation:
        """Its rows."""
        return formulate(self.problem, self.columns)

    def __reduce__(self) -> tuple[Callable[[str], WholeModel | None], tuple[str]]:
        """Only the name leaves this process."""
        return _held_model, (self.name,)


@dataclass(frozen=True, slots=True)
class ModelPart:
    """One stage: some classes of a whole problem, and floors of priorities."""

    whole: WholeModel | None
    """None in a process that does not hold it."""
    classes: tuple[int, ...]
    """In the order of the stage; all other classes of the whole problem are left out."""
    floors: tuple[tuple[int, int], ...]

    def formulation(self, whole: WholeModel) -> Formulation:
        """The model of the stage, with the columns of the whole model."""
        x, formulation = whole.columns, whole.formulation
        upper = formulation.upper.copy()
        upper[list(self._left_out(x))] = 0
        floors = priority(replace(whole.problem, floors=self.floors), x)
        return replace(formulation, upper=upper, rows=(*formulation.rows, *floors))

    def _left_out(self, x: Columns) -> Iterator[int]:
        """Columns of starts of the other classes, now and later, and of their replicas."""
        kept = frozenset(self.classes)
        yield from (column for (index, _), column in x.jobs.items() if index not in kept)
        yield from (column for (index, *_), column in x.later.starts.items() if index not in kept)
        alone = {index for index, kind in enumerate(x.kinds) if kept.isdisjoint(kind.classes)}
        for columns in (x.replicas, x.located):
            yield from (column for (kind, _), column in columns.items() if kind in alone)

    def renumbered(self, aggregate: Aggregate) -> Aggregate:
        """An answer of the model in terms of the problem of the stage."""
        place = {index: number for number, index in enumerate(self.classes)}
        return replace(
            aggregate,
            batches=tuple(_renumbered(batch, place) for batch in aggregate.batches),
            later=tuple((place[index], option, slot, jobs) for index, option, slot, jobs in aggregate.later),
        )


def _renumbered(batch: Batch, place: Mapping[int, int]) -> Batch:
    return replace(batch, jobs=tuple((place[index], jobs) for index, jobs in batch.jobs))


_held: Final[dict[str, WholeModel]] = {}
"""The model that this process holds for the processes that it forks; at most one."""


def hold_model(name: str, problem: Problem, params: FormulationParams) -> None:
    """Build a model and hold it, in place of the last one."""
    _held.clear()
    model = WholeModel(problem, params, name)
    _ = model.formulation
    _held[name] = model


def _held_model(name: str) -> WholeModel | None:
    return _held.get(name)
