"""
Master problem: how many nodes of each class carry which contents, and which jobs get places; by HiGHS.

    max  Σ_{j,i} points_ji · jobs[j,i] + Σ_{t,c} points_tc · nodes[t,c] − price · Σ_g missing[g]
    Σ_c nodes[t,c]  ≤  nodes of t                                                            ∀ node classes t
    Σ_{t,c} count_ci · nodes[t,c] + Σ_b swap[b,i] − Σ_a swap[i,a]  ≥  Σ_j R_j · jobs[j,i]         ∀ items i
    Σ_i jobs[j,i]  ≤  n_j                                                                        ∀ classes j
    Σ_{j of p, i} points_ji · jobs[j,i]  ≥  floor_p                               ∀ priorities p with a floor

and the rows (C7) and (C8) of quotas and guarantees. swap[b,i] gives places of item b to replicas of item i,
which take no more: one column then stands for all contents that it dominates. Without swaps column generation
takes three times as many rounds here, and the integer master finds no answer as good.

Contents are generated as the linear relaxation asks for them (Gilmore and Gomory, A linear programming
approach to the cutting-stock problem, Operations Research 9, 1961).
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import highspy
import numpy as np

from gpuplan.models.units import MILLI
from gpuplan.solvers.improve.column_generation.dominance import dominance_pairs
from gpuplan.solvers.improve.column_generation.subproblem import PRICE_SCALE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gpuplan.solvers.improve.column_generation.subproblem import Contents, RepackProblem
    from gpuplan.solvers.state.ledger import Ledger

    Floats: TypeAlias = NDArray[np.float64]

    Terms: TypeAlias = Sequence[tuple[int, float]]
    """(row, coefficient)."""

_TOLERANCE: Final = 1e-6
"""Tolerance for values of the linear relaxation."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One column: nodes of a class with the same contents."""

    node_class: int
    contents: Contents
    points: int
    """Points of one node: prices of its places, and its waste less that of an empty node; without jobs."""


@dataclass(frozen=True, slots=True)
class DualPrices:
    """Dual values of the linear relaxation."""

    places: tuple[int, ...]
    """Of one place of each item, in parts of a point; never negative."""
    node_class_prices: tuple[float, ...]
    """Value that contents must exceed to be of use on a node of each class, in parts of a point."""
    rest: float
    """Part of the bound that does not come from nodes, in points."""
    value: float
    """Value of the linear relaxation with the columns known so far, in points."""


@dataclass(frozen=True, slots=True)
class MasterSolution:
    """Answer of the integer master."""

    nodes: tuple[tuple[Configuration, int], ...]
    swaps: tuple[tuple[int, int, int], ...]
    """(item that gives places, item that gets them, places), larger items first."""
    jobs: tuple[int, ...]
    """Number of jobs by offer."""
    points: int
    """Objective of the master."""


class Master:
    """The master problem; columns are added as they are found."""

    def __init__(
        self, ledger: Ledger, question: RepackProblem, seed: int, floors: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self._question = question
        self._highs = highspy.Highs()
        for name, value in {"output_flag": False, "threads": 1, "random_seed": seed}.items():
            self._highs.setOptionValue(name, value)
        self._rows: list[tuple[float, float]] = []
        self._terms: list[tuple[int, int, float]] = []
        """(row, column, coefficient) of the columns that exist from the start."""
        self._points: list[float] = []
        self._most: list[float] = []
        self._configurations: list[Configuration] = []
        self._known: set[tuple[int, Contents]] = set()
        self._relaxed: Floats = np.zeros(0)
        """Nodes with each configuration in the last linear relaxation."""
        self._continuous: list[int] = []
        self._of_priority: defaultdict[int, list[int]] = defaultdict(list)
        """Columns of jobs by priority."""
        self._floor_rows: dict[int, int] = {}
        self._first_item = len(question.node_classes)
        for node_class in question.node_classes:
            self._row(-math.inf, len(node_class.nodes))
        for _ in question.items:
            self._row(0, math.inf)
        self._offer_jobs()
        self._keep_quotas(ledger)
        self.paid = 0
        """Price of unmet guarantees while none of the jobs has a place."""
        self._meet_guarantees(ledger)
        self._keep_floors(ledger, floors)
        self._real = len(self._points)
        """Columns before those of swaps; the bound ignores swaps, since pricing finds what they stand for."""
        self.swaps = dominance_pairs(question.items, alike=bool(ledger.problem.charges.fragmentation))
        for giver, taker in self.swaps:
            terms = [(self._first_item + giver, -1.0), (self._first_item + taker, 1.0)]
            self._column(0, math.inf, terms)
        self._pass()

    # --- rows and columns ----------------------------------------------------------------------------------

    def _row(self, lower: float, upper: float) -> int:
        self._rows.append((lower, upper))
        return len(self._rows) - 1

    def _column(self, points: float, most: float, terms: Terms) -> int:
        column = len(self._points)
        self._points.append(points)
        self._most.append(most)
        self._terms += [(row, column, factor) for row, factor in terms]
        return column

    def _offer_jobs(self) -> None:
        offers = self._question.offers
        by_class: dict[int, list[int]] = {}
        for column, offer in enumerate(offers):
            by_class.setdefault(offer.job_class, []).append(column)
            self._column(offer.points, offer.most, [(self._first_item + offer.item, -offer.replicas)])
        for columns in by_class.values():
            if len(columns) > 1:
                row = self._row(-math.inf, offers[columns[0]].most)
                self._terms += [(row, column, 1.0) for column in columns]

    def _keep_quotas(self, ledger: Ledger) -> None:
        """Limit each queue to what it may hold, or to what it holds already without these jobs."""
        problem = ledger.problem
        for index, budget in enumerate(problem.budgets):
            if not any(limit is not None for limit in budget.firm):
                continue
            fixed = ledger.queues.quota.held(index)
            usage = budget.usage_up_the_tree(fixed)
            terms = self._usage(ledger, budget)
            for queue in budget.leaves_first:
                firm, parent = budget.firm[queue], budget.parent[queue]
                if firm is not None and terms[queue]:
                    row = self._row(-math.inf, max(firm, usage[queue]) - fixed[queue])
                    self._terms += [(row, column, factor) for column, factor in terms[queue]]
                if parent is None:
                    continue
                if not terms[queue]:
                    fixed[parent] += max(0, fixed[queue] - budget.kept[queue])
                elif not budget.kept[queue]:
                    terms[parent] += terms[queue]
                    fixed[parent] += fixed[queue]
                else:
                    spill = self._spill(terms[queue], fixed[queue], budget.kept[queue])
                    terms[parent].append((spill, 1.0))

    def _spill(self, terms: list[tuple[int, float]], fixed: int, kept: int) -> int:
        """A column for the usage of a queue beyond the quota that it keeps from lending."""
        most = sum(factor * self._most[column] for column, factor in terms)
        spill = self._column(0, max(0, fixed) + most, [])
        self._continuous.append(spill)
        row = self._row(-math.inf, kept - fixed)
        self._terms += [(row, column, factor) for column, factor in (*terms, (spill, -1.0))]
        return spill

    def _meet_guarantees(self, ledger: Ledger) -> None:
        problem = ledger.problem
        for guarantee, missing in zip(problem.guarantees, ledger.queues.quota.missing, strict=True):
            whole = -(-missing // MILLI)
            if whole <= 0:
                continue
            # What is missing now is paid for already; a column says how much of it stays missing.
            by_queue = self._usage(ledger, guarantee)
            row = self._row(missing, math.inf)
            self._column(-guarantee.price, whole, [(row, MILLI)])
            self._terms += [
                (row, column, factor) for queue in guarantee.queues for column, factor in by_queue[queue]
            ]
            self.paid += guarantee.price * whole

    def _keep_floors(self, ledger: Ledger, floors: tuple[tuple[int, int], ...]) -> None:
        """Let jobs of each priority earn what they must, beside what its other jobs earn."""
        for column, offer in enumerate(self._question.offers):
            self._of_priority[ledger.problem.classes[offer.job_class].priority].append(column)
        for priority, floor in floors:
            if columns := self._of_priority.get(priority):
                row = self._floor_rows[priority] = self._row(floor - ledger.served[priority], math.inf)
                self._terms += [(row, column, self._points[column]) for column in columns]

    def admit(self, least_priority: int) -> None:
        """Give places only to jobs of a priority and of higher ones, until more are admitted."""
        offers = self._question.offers
        for priority, columns in self._of_priority.items():
            for column in columns:
                self._most[column] = offers[column].most if priority >= least_priority else 0
        most = np.array(self._most[: len(offers)], dtype=float)
        self._highs.changeColsBounds(
            len(most), np.arange(len(most), dtype=np.int32), np.zeros(len(most)), most
        )
        # All columns may be fractions again.
        count = len(self._points) + len(self._configurations)
        self._highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), np.zeros(count, np.uint8))
        self._highs.setOptionValue("objective_target", -math.inf)

    def keep(self, priority: int, answer: MasterSolution) -> int:
        """Let the jobs of a priority earn at least what they do in an answer; returns it."""
        columns = self._of_priority.get(priority, [])
        floor = sum(answer.jobs[column] * round(self._points[column]) for column in columns)
        if (row := self._floor_rows.get(priority)) is not None:
            self._highs.changeRowBounds(row, float(floor), math.inf)
            self._upper[row] = floor
        return floor

    def _usage(self, ledger: Ledger, scope: Any) -> list[list[tuple[int, float]]]:
        """(column, amount that a job counts for) by queue, in a budget or a guarantee."""
        terms: list[list[tuple[int, float]]] = [[] for _ in ledger.problem.queues]
        for column, offer in enumerate(self._question.offers):
            job_class = ledger.problem.classes[offer.job_class]
            model = job_class.options[offer.options[0]].gpu_model
            if amount := job_class.shape.quota_on(model, scope.resource) * offer.replicas:
                terms[job_class.queue].append((column, float(amount)))
        return terms

    def _pass(self) -> None:
        lower, upper = (np.array(side, dtype=float) for side in zip(*self._rows, strict=True))
        nothing = np.zeros(0, dtype=np.int32)
        self._highs.addRows(len(lower), lower, upper, 0, nothing, nothing, np.zeros(0))
        self._upper = np.where(np.isfinite(upper), upper, lower)
        """Right-hand side of each row; every row has exactly one."""
        self._sign = np.where(np.isfinite(upper), 1.0, -1.0)
        rows, columns, factors = (np.array(side) for side in zip(*self._terms, strict=True))
        self._sparse = rows.astype(np.int32), columns.astype(np.int64), factors.astype(float)
        order = np.argsort(columns, kind="stable")
        starts = np.searchsorted(columns[order], np.arange(len(self._points)))
        cost, most = -np.array(self._points, dtype=float), np.array(self._most, dtype=float)
        zeros = np.zeros(len(cost))
        self._highs.addCols(
            len(cost),
            cost,
            zeros,
            most,
            len(order),
            starts.astype(np.int32),
            rows[order].astype(np.int32),
            factors[order].astype(float),
        )

    def add(self, configuration: Configuration) -> bool:
        """Add a column; False if it exists already."""
        key = configuration.node_class, configuration.contents
        if key in self._known:
            return False
        self._known.add(key)
        self._configurations.append(configuration)
        nodes = len(self._question.node_classes[configuration.node_class].nodes)
        rows = [configuration.node_class, *(self._first_item + item for item, _ in configuration.contents)]
        factors = [1.0, *(float(count) for _, count in configuration.contents)]
        self._highs.addCol(
            -float(configuration.points),
            0.0,
            float(nodes),
            len(rows),
            np.array(rows, dtype=np.int32),
            np.array(factors),
        )
        return True

    # --- solving -------------------------------------------------------------------------------------------

    def relax(self, deadline: float) -> DualPrices | None:
        """Dual values at the optimum of the linear relaxation; None if time ran out."""
        self._highs.setOptionValue("time_limit", max(0.0, deadline - time.monotonic()))
        self._highs.run()
        if self._highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return None
        self._relaxed = np.array(self._highs.getSolution().col_value)[len(self._points) :]
        # HiGHS minimizes: its duals have the other sign. A dual of the wrong sign is a rounding error.
        duals = -np.array(self._highs.getSolution().row_dual)
        duals = self._sign * np.maximum(0.0, self._sign * duals)
        nodes, items = (
            slice(0, self._first_item),
            slice(self._first_item, self._first_item + len(self._question.items)),
        )
        places = np.rint(-duals[items] * PRICE_SCALE).astype(np.int64)
        to_beat = duals[nodes] * PRICE_SCALE
        duals[items], duals[nodes] = -places / PRICE_SCALE, 0.0
        rows, columns, factors = self._sparse
        paid = np.bincount(columns, weights=duals[rows] * factors, minlength=len(self._points))
        gain = (np.array(self._points) - paid)[: self._real]
        rest = float(duals @ np.where(duals != 0, self._upper, 0.0))
        rest += float(np.maximum(0.0, gain) @ np.array(self._most)[: self._real])
        value = -self._highs.getInfo().objective_function_value
        return DualPrices(
            tuple(places.tolist()), tuple(to_beat.tolist()), rest + self.paid, value + self.paid
        )

    def maximize(self, deadline: float, target: float) -> MasterSolution | None:
        """
        Best integer answer found in time; the search stops at the target. None if no answer was found.

        The first search uses only the columns of the last linear relaxation, each rounded up or down
        (Berthold, RENS, Mathematical Programming Computation 6, 2014). The second uses all, and starts from
        there.
        """
        highs, count = self._highs, len(self._points) + len(self._configurations)
        relaxed = np.zeros(len(self._configurations))
        relaxed[: len(self._relaxed)] = self._relaxed
        integer = np.ones(count, dtype=np.uint8)
        integer[self._continuous] = 0
        highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), integer)
        highs.setOptionValue("mip_rel_gap", 0.0)
        # Points are integers: a gap below one point is a proof.
        highs.setOptionValue("mip_abs_gap", 0.999)
        highs.setOptionValue("objective_target", self.paid - target + _TOLERANCE)
        self._bound_nodes(np.floor(relaxed + _TOLERANCE), np.ceil(relaxed - _TOLERANCE))
        share = self._question.params.share_of_rounding
        best = self._search(time.monotonic() + share * (deadline - time.monotonic()))
        most = [len(self._question.node_classes[one.node_class].nodes) for one in self._configurations]
        self._bound_nodes(np.zeros(len(most)), np.array(most, dtype=float))
        if best is not None:
            start = highspy.HighsSolution()
            start.col_value = best.tolist()
            highs.setSolution(start)
        if best is None or -self._cost(best) + self.paid < target - _TOLERANCE:
            last = self._search(deadline)
            if best is None or (last is not None and self._cost(last) < self._cost(best)):
                best = last
        return None if best is None else self._answer(best)

    def _bound_nodes(self, lower: Floats, upper: Floats) -> None:
        """Set limits on the number of nodes with each configuration."""
        columns = len(self._points) + np.arange(len(lower), dtype=np.int32)
        self._highs.changeColsBounds(len(columns), columns.astype(np.int32), lower, upper)

    def _search(self, deadline: float) -> Floats | None:
        """Values of all columns in the best integer answer found in time; None without one."""
        self._highs.setOptionValue("time_limit", max(0.0, deadline - time.monotonic()))
        self._highs.run()
        if self._highs.getInfo().primal_solution_status != int(highspy.kSolutionStatusFeasible):
            return None
        values: Floats = np.rint(np.array(self._highs.getSolution().col_value))
        return values

    def _cost(self, values: Floats) -> float:
        """Objective that HiGHS minimizes, without its constant."""
        points = [*self._points, *(one.points for one in self._configurations)]
        return -float(np.array(points, dtype=float) @ values)

    def _answer(self, found: Floats) -> MasterSolution:
        values, first = found.astype(np.int64), len(self._points)
        offers, real = len(self._question.offers), self._real
        swaps = [(a, b, n) for (a, b), n in zip(self.swaps, values[real:first].tolist(), strict=True) if n]
        nodes = zip(self._configurations, values[first:].tolist(), strict=True)
        return MasterSolution(
            tuple((one, n) for one, n in nodes if n),
            tuple(swaps),
            tuple(values[:offers].tolist()),
            self.paid - round(self._cost(found)),
        )
