"""Filters: which nodes refuse a job, in words, and what tells jobs apart for them."""

from __future__ import annotations

import pytest

from gpuplan.models.affinity import Toleration
from gpuplan.models.cluster import Gpu, Taint, TaintEffect
from gpuplan.models.eligibility.node_eligibility import eligibility_key, ineligibility
from tests.support.builders import build

GOLD = {"key": "tier", "values": ["gold", "silver"]}


@pytest.mark.parametrize(
    ("job", "node", "why"),
    [
        ({}, {"ready": False, "cordoned": True}, "node is not ready"),
        ({}, {"cordoned": True, "drain": True}, "node is cordoned"),
        ({}, {"drain": True}, "node is to be drained"),
        ({"node_selector": {"tier": "gold"}}, {"labels": {"tier": "iron"}}, "node lacks label tier=gold"),
        ({"affinity": [GOLD]}, {"labels": {"tier": "iron"}}, "node does not meet tier in gold, silver"),
        ({"affinity": [GOLD]}, {}, "node does not meet tier in gold, silver"),
        (
            {"affinity": [GOLD | {"operator": "NotIn"}]},
            {"labels": {"tier": "gold"}},
            "node does not meet tier not in gold, silver",
        ),
        ({"affinity": [{"key": "a", "operator": "Exists"}]}, {}, "node does not meet label a"),
        (
            {"affinity": [{"key": "a", "operator": "DoesNotExist"}]},
            {"labels": {"a": ""}},
            "node does not meet no label a",
        ),
        ({"regions": ["eu", "us"]}, {"region": "asia"}, "region asia is not allowed"),
        ({"regions": ["eu"]}, {}, "region unknown is not allowed"),
        ({}, {"taints": (Taint(key="k"),)}, "taint k is not tolerated"),
        ({"gpus": 1}, {"gpus": 0}, "node has no GPUs"),
        ({"gpus": 1, "gpu_models": {"T4": 1}}, {}, "GPU model H100-80GB is not allowed"),
        ({"milli": 500}, {"time_sliced": True}, "shares of its GPUs are time-sliced"),
        ({"mig": {"1g.10gb": 1, "1g.5gb": 1}}, {}, "GPU model H100-80GB offers no MIG profile 1g.5gb"),
        ({"mig": {"1g.10gb": 1}}, {"model": "T4"}, "GPU model T4 offers no MIG profile 1g.10gb"),
    ],
)
def test_a_node_says_why_it_refuses(job, node, why):
    assert ineligibility(build.job(**job), build.node(**node)) == why


@pytest.mark.parametrize(
    ("job", "node"),
    [
        ({"affinity": [GOLD]}, {"labels": {"tier": "silver"}}),
        ({"affinity": [GOLD | {"operator": "NotIn"}]}, {}),
        ({"regions": ["eu", ""]}, {}),
        ({"regions": ["eu"]}, {"region": "eu"}),
        ({}, {"taints": (Taint(key="k", effect=TaintEffect.PREFER_NO_SCHEDULE),)}),
        ({"tolerations": (Toleration(key="k"),)}, {"taints": (Taint(key="k"),)}),
        ({"milli": 500, "time_slicing": True}, {"time_sliced": True}),
        ({"gpus": 1}, {"time_sliced": True}),
        ({"mig": {"1g.10gb": 1}}, {"time_sliced": True}),
        ({"mig": {"1g.10gb": 1}}, {"model": "X1", "mig": {3: [("1g.10gb", 0)]}}),
        ({}, {"gpus": 0}),
    ],
)
def test_a_node_accepts_what_nothing_speaks_against(job, node):
    assert ineligibility(build.job(**job), build.node(**node)) is None


@pytest.mark.parametrize(
    ("request_", "needed", "offered"),
    [
        ({"gpus": 1}, 80_000, 80_000),
        ({"milli": 250}, 20_000, 80_000),
        ({"mig": {"3g.40gb": 1}}, 40_000, 40_000),
        ({"mig": {"3g.40gb": 1, "1g.10gb": 1}}, 10_000, 10_000),
    ],
)
def test_memory_comes_with_the_part_of_the_gpu(request_, needed, offered):
    job, node = build.job(**request_), build.node(gpu_memory_mib=80_000)

    def asks(gpu_memory_mib):
        return job.model_copy(
            update={"request": job.request.model_copy(update={"gpu_memory_mib": gpu_memory_mib})}
        )

    assert ineligibility(asks(needed), node) is None
    assert ineligibility(asks(needed + 1), node) == f"GPU memory of {offered} MiB is too small"


def test_memory_of_instances_of_an_unknown_geometry_is_unknown():
    job = build.job(mig={"1g.10gb": 1})
    job = job.model_copy(update={"request": job.request.model_copy(update={"gpu_memory_mib": 1})})

    assert ineligibility(job, build.node(model="X1", mig={0: [("1g.10gb", 0)]})) is not None


def test_the_order_of_lists_tells_no_jobs_apart():
    one, other = Toleration(key="a"), Toleration(key="b")
    conditions = [GOLD, {"key": "x", "operator": "Exists"}]
    given = {"tolerations": (one, other), "affinity": conditions, "regions": ["eu", "us"]}
    turned = {"tolerations": (other, one), "affinity": conditions[::-1], "regions": ["us", "eu"]}

    assert eligibility_key(build.job(**given)) == eligibility_key(build.job(**turned))
    assert build.job(**given).requirements_key == build.job(**turned).requirements_key


@pytest.mark.parametrize(
    "other",
    [
        {"gpus": 0, "milli": 500},
        {"gpus": 0, "mig": {"1g.10gb": 1}},
        {"gpu_models": {"T4": 1}},
        {"node_selector": {"a": "b"}},
        {"tolerations": (Toleration(key="x"),)},
        {"affinity": [GOLD]},
        {"regions": ["eu"]},
    ],
)
def test_what_refusal_looks_at_tells_jobs_apart(other):
    one, another = build.job(gpus=1), build.job(**{"gpus": 1} | other)
    assert eligibility_key(one) != eligibility_key(another)
    assert one.requirements_key != another.requirements_key


def test_time_slicing_matters_to_shares_alone():
    assert eligibility_key(build.job(gpus=1)) == eligibility_key(build.job(gpus=1, time_slicing=True))
    assert eligibility_key(build.job(milli=5)) != eligibility_key(build.job(milli=5, time_slicing=True))
    assert build.job(milli=5).requirements_key != build.job(milli=5, time_slicing=True).requirements_key


@pytest.mark.parametrize(
    ("pinned", "healthy", "request_", "refused"),
    [
        (True, False, {"gpus": 1}, False),
        (False, True, {"gpus": 1}, False),
        (False, False, {"gpus": 1}, True),
        (False, False, {"cpus": 1}, False),
    ],
)
def test_where_the_cluster_chooses_gpus_all_of_them_must_be_healthy(pinned, healthy, request_, refused):
    node = build.node(details=[Gpu(index=3, healthy=healthy)])
    node = node.model_copy(update={"gpus": node.gpus.model_copy(update={"pinned": pinned})})

    assert bool(ineligibility(build.job(**request_), node)) is refused
