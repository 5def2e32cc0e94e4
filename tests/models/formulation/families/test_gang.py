from __future__ import annotations

from tests.support.builders import build
from tests.support.harness.family_rows import most, rows


def test_classes_of_one_kind_share_their_replicas():
    jobs = [build.job("low", gpus=1), build.job("high", gpus=1, priority=1)]

    (row,) = rows(build.snapshot(jobs=jobs), "gang")

    assert sorted(row.coefficients.tolist()) == [-1, -1, 1]


def test_elastic_classes_are_a_kind_each():
    jobs = [build.job("low", gpus=1, replicas=(1, 2)), build.job("high", gpus=1, replicas=(1, 2), priority=1)]

    assert len(rows(build.snapshot(jobs=jobs), "gang")) == 4


def test_rigid_gang_takes_all_its_places():
    (row,) = rows(build.snapshot(jobs=[build.job(gpus=1, replicas=4)]), "gang")

    assert (row.lower, row.upper) == (0, 0)
    assert sorted(row.coefficients.tolist()) == [-4, 1]


def test_gang_that_does_not_fit_whole_is_not_placed():
    two_nodes = build.cluster(2, gpus=4)

    assert most(build.snapshot(nodes=two_nodes, jobs=[build.job(gpus=4, replicas=2)])) == 2
    assert most(build.snapshot(nodes=two_nodes, jobs=[build.job(gpus=4, replicas=3)])) == 0


def test_elastic_gang_takes_what_there_is_between_its_limits():
    nodes = build.cluster(3, gpus=4)

    assert most(build.snapshot(nodes=nodes, jobs=[build.job(gpus=4, replicas=(2, 4))])) == 3
    assert most(build.snapshot(nodes=nodes, jobs=[build.job(gpus=4, replicas=(1, 2))])) == 2
    assert most(build.snapshot(nodes=nodes, jobs=[build.job(gpus=4, replicas=(4, 5))])) == 0


def test_gang_is_not_spread_over_two_gpu_models():
    nodes = [build.node("a", gpus=4, model="H100-80GB"), build.node("b", gpus=4, model="A100-80GB")]

    assert most(build.snapshot(nodes=nodes, jobs=[build.job(gpus=4, replicas=2)])) == 0
    assert most(build.snapshot(nodes=nodes, jobs=[build.job(gpus=2, replicas=2)])) == 2


def test_gang_spans_groups_of_one_gpu_model():
    nodes = [build.node("a", gpus=4), build.node("b", gpus=2)]

    assert most(build.snapshot(nodes=nodes, jobs=[build.job(gpus=2, replicas=3)])) == 3
