"""Solve a neighbourhood: lift the jobs off some nodes and ask HiGHS for a better assignment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.solvers.exact import milp
from gpuplan.solvers.improve.destroy import answered, as_it_was, lift
from gpuplan.solvers.improve.subproblem import ask_about
from gpuplan.solvers.rounding.disaggregate import disaggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.solvers.improve.destroy import Answered
    from gpuplan.solvers.improve.subproblem import Share
    from gpuplan.solvers.interface import Budget
    from gpuplan.solvers.state.ledger import Ledger


def lift_and_ask(
    ledger: Ledger, nodes: Sequence[int], budget: Budget, share: Share | None = None
) -> Answered | None:
    """
    Lift the jobs off some nodes and assign these anew; None if there is no better answer than before.

    With a share the nodes are a part of the cluster. The ledger stays lifted; the caller rolls it back.
    """
    before = ledger.objective
    lifted = lift(ledger, nodes)
    asked = ask_about(ledger, nodes, share)
    x = Columns(asked.problem)
    formulation = formulate(asked.problem, x)
    hint = np.zeros(len(formulation.upper), dtype=np.int64)
    if (known := as_it_was(asked, lifted)) is not None:
        with suppress(KeyError):  # a column of the known answer is missing
            hint = x.encode(known)
    answer = milp.solve(formulation, budget, hint, lambda _: None)
    if answer.values is None:
        return None
    found, _ = disaggregate(asked.problem, x.decode(answer.values))
    return answered(asked, found) if found.objective > before - ledger.objective else None
