"""What queues hold besides the jobs that are packed anew, in the terms of quotas and guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.models.problem import Guarantee, QueueBudget
    from planner.solvers.ledger import Ledger


def held(ledger: Ledger, scope: QueueBudget | Guarantee) -> list[int]:
    """Thousandths of GPUs held directly in each queue: by what keeps running, and by what was placed."""
    change = [0] * len(ledger.problem.queues)
    for queue, gpu_model, milli in _changes(ledger):
        change[queue] += milli if scope.counts(gpu_model) else 0
    return change


def _changes(ledger: Ledger) -> Iterator[tuple[int, str | None, int]]:
    """(queue, GPU model, thousandths) that came to be held, and that were given up."""
    problem = ledger.problem
    for _, placed in sorted(ledger.placed.items()):
        job_class = problem.classes[placed.job_class]
        yield job_class.queue, placed.option.gpu_model, job_class.shape.quota_milli * len(placed.sites)
    for one, incumbent in enumerate(problem.incumbents):
        if (fate := ledger.fates[one]) is not None:
            milli = incumbent.shape.quota_milli * len(fate.given_up)
            yield incumbent.queue, incumbent.gpu_model, -milli
