"""How many replicas fit on several nodes under limits that these share, against everything tried."""

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from gpuplan.solvers.state.constraints.constraint import JointRoom, SharedLimit

ENOUGH = 5


def world(seed):
    """Room of nodes in racks and zones, power caps of racks, and a limit of spread."""
    draw = random.Random(seed)
    count = draw.randint(1, 5)
    racks = sorted(draw.randint(0, 2) for _ in range(count))
    zones = [rack // 2 for rack in racks]
    room = [draw.randint(0, 2) for _ in range(count)]
    watts = SharedLimit(
        np.array(racks), np.array([draw.choice((0, 300, 700)) for _ in racks]), [draw.randint(0, 2_000)] * 3
    )
    groups = draw.choice((range(count), racks, zones))
    spread = SharedLimit(np.array(groups), np.ones(count, dtype=np.int64), [draw.randint(1, 2)] * 5)
    shared = draw.choice(((), (watts,), (spread,), (watts, spread)))
    domains = draw.choice((None, np.array(racks), np.array(zones)))
    return JointRoom(np.array(room), ENOUGH, shared, domains)


def most(joint, there):
    """The most replicas on some of the nodes that exceed no limit."""
    return max(
        sum(counts)
        for counts in itertools.product(
            *(range(room + 1) if here else (0,) for room, here in zip(joint.room, there, strict=True))
        )
        if all(keeps(limit, counts) for limit in joint.shared)
    )


def keeps(limit, counts):
    taken = Counter()
    for group, cost, count in zip(limit.groups, limit.costs, counts, strict=True):
        taken[group] += cost * count
    return all(amount <= limit.left[group] for group, amount in taken.items())


@pytest.mark.parametrize("part", range(4))
def test_replicas_on_several_nodes_are_as_many_as_any_choice_has(part):
    for seed in range(part, 400, 4):
        joint = world(seed)
        count = len(joint.room)
        domains = np.zeros(count) if joint.domains is None else joint.domains
        found = joint.by_domain()

        expected = {
            int(each): min(ENOUGH, most(joint, domains == each)) for each in np.unique(domains).tolist()
        }
        assert {each: found.get(each, 0) for each in expected} == expected, seed
        assert joint.best == max(expected.values())
