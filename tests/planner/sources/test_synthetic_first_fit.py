"""First fit: which nodes a job gets, and which quota lets it run."""

from __future__ import annotations

from gpuplan.models.queue import Queue, QuotaAmounts
from gpuplan.planner.sources.synthetic import FirstFit, QuotaTracker
from tests.support.builders.build import job, node


def test_first_fit_goes_through_the_nodes_in_their_order():
    fit = FirstFit([node("n1", gpus=2), node("n0", gpus=2)])
    places = []
    while replicas := fit.find(job(gpus=1), replicas=1):
        fit.take(replicas)
        places += [(replica.node, replica.gpus[0].index) for replica in replicas]

    assert places == [("n1", 0), ("n1", 1), ("n0", 0), ("n0", 1)]


def test_first_fit_puts_a_gang_on_one_model_or_nowhere():
    nodes = [node("a", model="A", gpus=2), node("b", model="B", gpus=2), node("a2", model="A", gpus=2)]
    fit = FirstFit(nodes)

    assert {replica.node for replica in fit.find(job(gpus=2), replicas=2)} == {"a", "a2"}
    assert fit.find(job(gpus=2), replicas=3) is None


def test_a_gang_that_does_not_fit_keeps_nothing_from_smaller_ones():
    fit = FirstFit([node("n0", gpus=8), node("n1", gpus=4)])

    assert fit.find(job(gpus=4), replicas=4) is None
    assert len(fit.find(job(gpus=4), replicas=3)) == 3


def test_first_fit_takes_idle_mig_instances_of_the_layout_and_makes_none():
    layouts = {0: [], 1: [("3g.40gb", 0), ("3g.40gb", 4)]}
    fit = FirstFit([node(model="A100-80GB", gpus=2, mig=layouts)])
    one = job(mig={"3g.40gb": 1})

    (first, second), third = fit.find(one, replicas=2), fit.find(one, replicas=3)
    fit.take((first, second))

    assert [(held.index, held.start) for held in (*first.gpus, *second.gpus)] == [(1, 0), (1, 4)]
    assert third is None
    assert fit.find(one, replicas=1) is None


def test_a_model_quota_limits_what_runs_on_that_model():
    quota = QuotaTracker((Queue(name="a", gpu_models={"O": {"nominal": 1}}),))

    assert quota.admit("a", "O", QuotaAmounts(1000))
    assert not quota.admit("a", "O", QuotaAmounts(100))
    assert quota.admit("a", "B", QuotaAmounts(5000))


def test_a_refused_job_uses_no_quota():
    quota = QuotaTracker((Queue(name="top", quota={"nominal": 2}), Queue(name="a", parent="top")))

    assert not quota.admit("a", None, QuotaAmounts(3000))
    assert quota.admit("a", None, QuotaAmounts(2000))
