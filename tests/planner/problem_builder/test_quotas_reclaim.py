"""What jobs may reclaim from running ones, and the quick tests of either side."""

from __future__ import annotations

from collections import Counter
from itertools import product

from gpuplan.planner.problem_builder.quotas import Reclaiming, min_requested_gpu_milli
from tests.support.strategies.reclaim_worlds import world


def test_a_job_that_may_reclaim_is_owed_something_and_takes_what_was_lent():
    seen = Counter()
    for seed in range(150):
        snapshot, policy = world(seed)
        reclaiming = Reclaiming(snapshot, policy)
        models = {*snapshot.cluster.gpu_model_by_node.values(), None}
        asked = {(job.queue, min_requested_gpu_milli(job)) for job in snapshot.waiting}
        held = product((queue.name for queue in snapshot.queues), models)
        for (queue, milli), holding in product(sorted(asked), held):
            likely = bool(reclaiming.owed(queue, milli)) and reclaiming.is_lent(holding)
            seen[reclaiming.may_take(queue, milli, holding), likely] += 1

    assert seen[True, False] == 0
    assert seen[True, True] >= 100, seen
    # Either side rules most pairs out.
    assert seen[False, False] > 2 * seen[False, True], seen
