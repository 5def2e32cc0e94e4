"""The question asked is the snapshot's: what places are worth, and what is charged for them."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import Level
from gpuplan.models.policy.policy import Profile
from gpuplan.models.problem.jobs import LocalityRule
from tests.support.builders import build
from tests.support.builders.problem_builders import names, posed


def test_faster_gpu_model_comes_first_and_pays_more():
    nodes = [build.node("a", model="T4"), build.node("b", model="H100-80GB")]
    job = build.job(gpus=1, gpu_models={"T4": 1, "H100-80GB": 4})

    (only,) = posed(nodes=nodes, jobs=[job]).classes

    assert [(option.gpu_model, option.points) for option in only.options] == [("H100-80GB", 100), ("T4", 25)]


def test_cpu_only_job_may_use_every_node_as_one_option():
    nodes = [build.node("a"), build.node("b", gpus=0)]

    (only,) = posed(nodes=nodes, jobs=[build.job(cpus=1)]).classes

    assert [(option.gpu_model, len(option.groups)) for option in only.options] == [(None, 2)]


def test_data_and_wishes_are_priced_by_group_and_replica():
    nodes = [
        build.node("a", zone="near", labels={"disk": "nvme"}),
        build.node("b", zone="near"),
        build.node("c", zone="far", labels={"disk": "nvme"}),
        build.node("d", zone="else"),
    ]
    job = build.job(
        gpus=1,
        datasets=["x", "y"],
        preferred_nodes=[
            {"match": {"key": "disk", "values": ["nvme"]}, "points": 7},
            {"match": {"key": "slow", "operator": "DoesNotExist"}, "points": 1000},
        ],
    )
    data = [
        {"name": "x", "zones": {"near": 0, "far": 2.5}, "elsewhere": 1},
        {"name": "y", "zones": {"near": 0, "far": 0.504}, "elsewhere": 0.25},
    ]
    problem = posed(nodes=nodes, jobs=[job], datasets=data)

    (only,) = problem.classes
    assert {name: points for group, points in only.node_points for name in names(problem, [group])} == {
        "b": -7,
        "c": -300,
        "d": -125 - 7,
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"locality": {"required": "rack"}}, LocalityRule(required=Level.RACK)),
        ({"locality": {"required": "rack", "preferred": "rack"}}, LocalityRule(required=Level.RACK)),
        (
            {"locality": {"required": "zone", "preferred": "rack"}},
            LocalityRule(required=Level.ZONE, preferred=Level.RACK),
        ),
        ({"spread": {"level": "zone", "max": 2}}, LocalityRule(spread=Level.ZONE, most=2)),
        ({"spread": {"max": 3}}, LocalityRule()),
        ({"replicas": 1, "locality": {"required": "rack"}, "spread": {"max": 1}}, LocalityRule()),
    ],
)
def test_together_is_what_so_many_replicas_can_feel(fields, expected):
    (only,) = posed(jobs=[build.job(**{"gpus": 1, "replicas": 3} | fields)]).classes

    assert only.together == expected


def test_a_preferred_level_without_a_price_is_none():
    job = build.job(gpus=1, replicas=2, locality={"preferred": "rack"})

    (only,) = posed(jobs=[job], policy={"prices": {"domain": 0}}).classes

    assert only.together == LocalityRule()


def test_domains_are_given_for_the_levels_in_use():
    nodes = [
        build.node("a", rack="r", zone="y"),
        build.node("b", rack="r", zone="z"),
        build.node("c", zone="y"),
        build.node("d", zone="y"),
        build.node("e", rack="r", zone="y"),
    ]
    jobs = [
        build.job("near", gpus=1, replicas=2, locality={"required": "rack"}),
        build.job(
            "apart", gpus=1, anti_affinity=[{"labels": {"app": "x"}, "level": "zone"}], labels={"app": "x"}
        ),
    ]

    domains = dict(posed(nodes=nodes, jobs=jobs).domains)

    assert domains == {Level.RACK: (0, 1, 2, 3, 0), Level.ZONE: (0, 1, 0, 0, 0)}


def test_profile_is_that_of_the_workload_class():
    jobs = [build.job("a", gpus=1, workload_class="serve"), build.job("b", gpus=2)]

    found = posed(jobs=jobs, policy={"profiles": {"serve": "spread"}}).classes

    assert [one.profile for one in found] == [Profile.SPREAD, Profile.PACK]


def test_charges_are_the_prices_of_the_policy():
    charges = posed(policy={"prices": {"domain": 3, "repartition": 4}, "mig": {"repartition": False}}).charges

    assert (charges.domain, charges.repartition, charges.may_repartition) == (3, 4, False)
    assert charges.switch_mode is None
    assert posed(policy={"mig": {"switch_mode": True}}).charges.switch_mode == 100


def test_options_of_gangs_pay_for_the_whole_and_of_elastic_ones_by_replica():
    jobs = [build.job("firm", gpus=1, replicas=4), build.job("lax", gpus=1, replicas=(2, 4))]

    firm, lax = posed(jobs=jobs).classes

    assert (firm.options[0].points, lax.options[0].points) == (400, 100)
