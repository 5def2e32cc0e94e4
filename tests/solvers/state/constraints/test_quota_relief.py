"""How much less counts where quota is short, if a queue below holds less."""

from __future__ import annotations

import random

import pytest

from gpuplan.models.problem.problem import QueueBudget
from gpuplan.solvers.state.constraints.quota import QuotaDemand


@pytest.mark.parametrize("seed", range(40))
def test_relief_is_what_no_longer_counts_at_the_queue_or_of_the_job_that_comes(seed):
    draw, queues = random.Random(seed), 7
    parent = (None, *(draw.randrange(queue) for queue in range(1, queues)))
    kept = tuple(draw.choice((0, 3, 8)) if queue else 0 for queue in range(queues))
    own = [draw.randrange(9) for _ in range(queues)]
    tree = QueueBudget(
        resource="gpus",
        leaves_first=tuple(reversed(range(queues))),
        parent=parent,
        kept=kept,
        limit=(None,) * queues,
        firm=(None,) * queues,
        own=tuple(own),
    )
    asker, asked = draw.randrange(queues), draw.randrange(1, 9)
    before = tree.usage_up_the_tree(own)
    after = tree.usage_up_the_tree([held + asked * (queue == asker) for queue, held in enumerate(own)])
    coming = {each: after[each] - before[each] for each in tree.path_to_root(asker)}

    for short in tree.path_to_root(asker):
        demand = QuotaDemand(tree, short, before[short], coming[short], before, coming)
        for giver, held in enumerate(own):
            left = tree.usage_up_the_tree(
                [each + asked * (queue == asker) - held * (queue == giver) for queue, each in enumerate(own)]
            )
            assert demand.relief(giver, held) == after[short] - left[short]
