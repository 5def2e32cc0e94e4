"""What an apply left under way is followed by the next epochs, which leave its jobs and nodes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuplan.models.policy.settings import ApplyPolicy
from tests.support.doubles.lasting_cluster import LastingCluster, VirtualClock
from tests.support.doubles.periodic_service import GREEDY

pytestmark = pytest.mark.slow

HASTY = GREEDY.model_copy(update={"apply": ApplyPolicy(timeouts={"start": 1}, parallel=1)})


def test_a_start_that_may_still_land_is_neither_repeated_nor_built_upon(bench):
    one = bench(policy=HASTY)
    clock = VirtualClock()
    # The first start lasts, and the cluster does not withdraw it.
    first = iter([1_000.0])
    cluster = LastingCluster(one.cluster, clock, lambda _: next(first, 0.0))
    cluster.trouble = lambda call, _: "lost" if call == "undo" else ""
    one.live = replace(one.live, executor=cluster)

    assert not one.epochs(1)
    (begun,) = [request.action for request in cluster.requests.values()]
    assert one.epochs(2)

    # The other job started on the other node, and nothing touched the place of the first.
    assert one.outcomes() == ["failed", "applied", "unchanged"]
    last = one.context.plans.latest()
    assert last.snapshot.job_by_name[begun.job].placement == begun.after
    assert not last.snapshot.job_by_name[begun.job].preemptible
    (node,) = {replica.node for replica in begun.after.replicas}
    assert last.snapshot.cluster.node_by_name[node].cordoned
    assert {action.job for action in cluster_actions(cluster)} == {"a", "b"}

    clock.sleep(2_000)
    assert one.epochs(2)

    last = one.context.plans.latest()
    assert last.snapshot.job_by_name[begun.job].preemptible
    assert not last.snapshot.cluster.node_by_name[node].cordoned
    assert len(cluster_actions(cluster)) == 2


def cluster_actions(cluster):
    return [request.action for request in cluster.requests.values()]
