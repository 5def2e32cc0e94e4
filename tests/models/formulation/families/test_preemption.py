from __future__ import annotations

import pytest

from gpuplan.models.affinity import LocalityPreference
from gpuplan.models.cluster import Level
from tests.support.builders import build
from tests.support.harness.solved_model import solved

RACK = {"region": "eu", "zone": "a", "rack": "r1"}


def running(priority=4, **more):
    return build.job("running", gpus=1, priority=priority, at=[build.replica(gpus=(0,))], **more)


def waiting(priority, name="waiting", **more):
    return build.job(name, gpus=1, priority=priority, **more)


HUGE = waiting(5, "huge", weight=100).model_copy(
    update={"request": build.job(gpus=1, memory_gib=10_000).request}
)
"""It outranks the running job, which may then be stopped for it; but no node takes it."""


def stopped(*jobs, queues, **more):
    """Jobs that are stopped, of those that run on the first GPU of a node, if there is room on others."""
    answer = solved(build.snapshot(jobs=[running(), *jobs], queues=queues, **more))
    return answer.stopped, dict(answer.placed)


@pytest.mark.parametrize("above", [False, True])
def test_quota_is_not_freed_for_a_job_that_does_not_outrank_the_running_one(above):
    queues = [build.queue("top", nominal=1), build.queue("q", parent="top")]
    queues = queues if above else [build.queue("q", nominal=1)]
    poor = waiting(1, weight=100)
    asks = HUGE.model_copy(update={"gpu_models": {build.MODEL: 1.0}})

    assert stopped(poor, asks, queues=queues) == (set(), {})
    assert stopped(waiting(5, weight=100), queues=queues) == ({"running"}, {"waiting": 1})


def test_quota_that_was_free_is_for_any():
    queues = [build.queue("q", nominal=2)]
    poor, rich = waiting(1), waiting(5, "rich", weight=100)
    second = waiting(5, "second", weight=100, cpus=1)

    assert stopped(poor, queues=queues) == (set(), {"waiting": 1})
    # Both of the others outrank the running job: one has its quota, the other what was free.
    assert stopped(rich, second, queues=queues)[0] == {"running"}


def test_power_is_not_freed_for_a_job_that_does_not_outrank_the_running_one():
    nodes = [build.node(name, watts=700, **RACK) for name in ("n0", "n1")]
    more = {"nodes": nodes, "rack_power": [RACK | {"watts": 700}], "queues": [build.queue()]}
    poor = waiting(1, weight=100)

    assert stopped(poor, HUGE, **more) == (set(), {})
    assert stopped(waiting(5, weight=100), **more) == ({"running"}, {"waiting": 1})


def test_gpus_that_were_free_beside_a_victim_are_for_any():
    rich, poor = waiting(5, "rich", weight=100), waiting(1, "poor")
    held = build.job("running", gpus=6, priority=4, at=[build.replica(gpus=range(6))])
    large = build.job("large", gpus=6, priority=5, weight=100)
    small = build.job("small", gpus=2, priority=1)
    middle = build.job("middle", gpus=3, priority=1, weight=100)

    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[held, large, small]))
    assert (answer.stopped, dict(answer.placed)) == ({"running"}, {"large": 1, "small": 1})
    # What is left over of the freed GPUs is not for one that does not outrank the victim.
    four = build.job("four", gpus=4, priority=5, weight=100)
    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[held, four, middle]))
    assert (answer.stopped, dict(answer.placed)) == ({"running"}, {"four": 1})
    answer = solved(build.snapshot(nodes=build.cluster(1), jobs=[held, rich, poor]))
    assert answer.stopped == set()


def racks(*sizes):
    return [
        build.node(f"r{rack}-{number}", gpus=8, region="eu", zone="a", rack=f"r{rack}")
        for rack, size in enumerate(sizes)
        for number in range(size)
    ]


def gang(name, replicas, priority):
    rack = LocalityPreference(required=Level.RACK)
    return build.job(name, gpus=8, replicas=replicas, priority=priority, weight=100, locality=rack)


HELD = build.job("held", gpus=8, priority=4, at=[build.replica("r0-0", gpus=range(8))])
OUTRANKS = build.job("outranks", gpus=8, priority=5)
"""The running job may be stopped for it."""


@pytest.mark.parametrize("priority", [1, 5])
def test_gang_finds_no_domain_that_only_preemption_for_others_clears(priority):
    """With a free node in another rack there would be enough for it in total."""
    nodes = racks(2, 1)

    answer = solved(build.snapshot(nodes=nodes, jobs=[HELD, OUTRANKS, gang("gang", 2, priority)]))

    assert answer.placed["gang"] == (priority == 5)


def test_gangs_of_a_domain_share_what_was_free_there():
    """Each of them alone has room in the rack."""
    nodes, gangs = racks(5, 1), [gang("small", 2, 1), gang("large", 3, 1)]

    answer = solved(build.snapshot(nodes=nodes, jobs=[HELD, OUTRANKS, *gangs]))

    assert answer.placed["small"] + answer.placed["large"] == 1
