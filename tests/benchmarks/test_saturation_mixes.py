"""Mixes of pods: each has the fractions that it names, and keeps the rest."""

from __future__ import annotations

import pytest

from benchmarks.saturation.mixes import JUDGE, TUNE, Mix, mixed
from benchmarks.saturation.trace import Machine, Shape, trace_of

PODS = [
    *[Shape(1000, 0, 0, (), 1024)] * 100,
    *[Shape(2000, 500, 1, (), 1024)] * 200,
    *[Shape(3000, 1000, 1, (), 1024)] * 150,
    *[Shape(3000, 1000, 1, ("T4",), 1024)] * 40,
    *[Shape(4000, 1000, 2, ("P100", "T4"), 1024)] * 10,
]
TRACE = trace_of("base", [Machine("n", 64_000, 2**19, 8, "T4")], PODS)


def with_gpus(trace):
    return [trace.shapes[pod] for pod in trace.pods.tolist() if trace.shapes[pod].gpus]


def part(pods, kind):
    return sum(map(kind, pods)) / len(pods)


@pytest.mark.parametrize("name", [*TUNE, *JUDGE])
def test_a_mix_has_the_fractions_that_it_names(name):
    mix = (TUNE | JUDGE)[name]

    pods = with_gpus(mixed(TRACE, name, mix, seed=3))

    assert len(pods) == 400
    assert part(pods, lambda pod: bool(pod.models)) == pytest.approx(mix.naming, abs=0.005)
    if mix.shares is not None:
        assert part(pods, lambda pod: pod.is_share) == pytest.approx(mix.shares, abs=0.005)
    if mix.several is not None:
        assert part(pods, lambda pod: pod.gpus > 1) == pytest.approx(mix.several, abs=0.005)


def test_more_cpu_is_asked_by_pods_with_gpus_alone_and_at_most_a_node():
    pods = mixed(TRACE, "heavy", Mix(cpu=20.0), seed=3)

    assert {shape.cpu_milli for shape in pods.shapes} == {1000, 40_000, 60_000, 64_000}


def test_mixes_to_tune_and_to_judge_have_nothing_in_common():
    assert not set(TUNE) & set(JUDGE)
    assert not set(TUNE.values()) & set(JUDGE.values())
