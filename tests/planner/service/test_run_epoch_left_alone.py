"""While actions are under way, nothing that they touch changes in a plan."""

from __future__ import annotations

from gpuplan.models.plan.actions import changes_of
from gpuplan.planner.service.run_epoch import left_alone
from tests.support.samples import all_actions

WORLD, PLAN = all_actions.WORLD, all_actions.PLAN


def changes(*kinds):
    return [change for change in changes_of(PLAN.actions) if change.type in kinds]


def test_without_anything_under_way_the_snapshot_is_the_same():
    assert left_alone(WORLD, ()) is WORLD


def test_a_job_that_is_to_start_holds_its_places_and_its_nodes_take_no_other():
    (start, *_) = changes("start")

    seen = left_alone(WORLD, [start])

    assert seen.job_by_name[start.job].placement == start.after
    assert not seen.job_by_name[start.job].preemptible
    cordoned = {node.name for node in seen.cluster.nodes if node.cordoned and not node_before(node).cordoned}
    there = {replica.node for replica in start.after.replicas} & WORLD.cluster.node_by_name.keys()
    assert cordoned == {name for name in there if not WORLD.cluster.node_by_name[name].cordoned}


def test_a_running_job_keeps_its_size_and_its_places():
    for change in changes("preempt", "shrink", "grow", "migrate"):
        job = left_alone(WORLD, [change]).job_by_name[change.job]

        count = len(job.running.replicas)
        assert not job.preemptible
        assert (job.gang.minimum, job.gang.maximum) == (count, count)


def test_a_pool_that_gets_or_loses_a_node_gets_no_other():
    for change in changes("scale_up", "scale_down"):
        seen = left_alone(WORLD, [change]).cluster
        (pool,) = [each for each in seen.pools if each.name == change.pool]

        assert pool.maximum <= sum(node.pool == pool.name for node in seen.nodes)


def node_before(node):
    return WORLD.cluster.node_by_name[node.name]
