"""Solve a neighbourhood: lift the jobs off some nodes and ask HiGHS for a better assignment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.models.formulation.encode import encode
from gpuplan.solvers.exact import milp
from gpuplan.solvers.improve.destroy import destroy_part, incumbent_target, repaired_part
from gpuplan.solvers.improve.subproblem import build_subproblem
from gpuplan.solvers.rounding.disaggregate import disaggregate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuplan.solvers.improve.destroy import RepairedPart
    from gpuplan.solvers.improve.subproblem import ResourceShare
    from gpuplan.solvers.interface import Budget
    from gpuplan.solvers.state.ledger import Ledger


def destroy_and_repair(
    ledger: Ledger, nodes: Sequence[int], budget: Budget, share: ResourceShare | None = None
) -> RepairedPart | None:
    """
    Lift the jobs off some nodes and assign these anew; None if there is no better answer than before.

    With a share the nodes are a part of the cluster. The ledger stays lifted; the caller rolls it back.
    """
    before = ledger.objective
    lifted = destroy_part(ledger, nodes)
    asked = build_subproblem(ledger, nodes, share, budget.params.lns)
    x = Columns(asked.problem, budget.params.formulation)
    formulation = formulate(asked.problem, x)
    hint = np.zeros(len(formulation.upper), dtype=np.int64)
    if (known := incumbent_target(asked, lifted, ledger.params)) is not None:
        with suppress(KeyError):  # a column of the known answer is missing
            hint = encode(x, known)
    answer = milp.solve(formulation, budget, hint, lambda _: None)
    if answer.values is None:
        return None
    found, _ = disaggregate(asked.problem, decode(x, answer.values), params=ledger.params)
    return repaired_part(asked, found) if found.objective > before - ledger.objective else None
