"""Numbers, host lists, GRES and TRES as Slurm writes them."""

from __future__ import annotations

import doctest

import pytest

from gpuplan.planner.sources.slurm import values
from gpuplan.planner.sources.slurm.values import GpuGres, flags, gpus_of, hosts, number, tres_of, words


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (4, 4),
        ("24", 24),
        ({"set": True, "infinite": False, "number": 4}, 4),
        ({"set": False, "infinite": False, "number": 0}, None),
        ({"set": True, "infinite": True, "number": 0}, None),
        (0xFFFFFFFE, None),
        (-2, None),
        ("N/A", None),
        (None, None),
        (True, None),
    ],
)
def test_numbers_in_both_shapes(written, meant):
    assert number(written) == meant


def test_states_in_both_shapes():
    assert flags("idle") == {"IDLE"}
    assert flags(["IDLE", "CLOUD"]) == {"IDLE", "CLOUD"}
    assert flags("mixed+drain") == {"MIXED", "DRAIN"}
    assert flags(None) == frozenset()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("login", ["login"]),
        ("gpu[01-03,07],login", ["gpu01", "gpu02", "gpu03", "gpu07", "login"]),
        ("r[1-2]n[08-10]", ["r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"]),
    ],
)
def test_host_lists(text, names):
    assert hosts(text) == names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("gpu:8", [GpuGres("", 8)]),
        ("gpu", [GpuGres("", 1)]),
        ("gpu:3090:4(IDX:0-3)", [GpuGres("3090", 4, (0, 1, 2, 3))]),
        ("gres:gpu:a100:2", [GpuGres("a100", 2)]),
        ("gres/gpu:h100:4", [GpuGres("h100", 4)]),
        ("gres/gpu=4", [GpuGres("", 4)]),
        ("gpu:h100:4(IDX:0-1,6-7),shard:8", [GpuGres("h100", 4, (0, 1, 6, 7))]),
        ("gpu:a100:8(S:0-1)", [GpuGres("a100", 8)]),
        ("gpu:h100:0(IDX:N/A)", [GpuGres("h100", 0)]),
        ("gpu:h100_3g.40gb:1(IDX:3)", [GpuGres("h100_3g.40gb", 1, (3,))]),
        ("gpu:a100:2,gpu:h100:2", [GpuGres("a100", 2), GpuGres("h100", 2)]),
        ("shard:8", []),
    ],
)
def test_gpus_in_gres(text, found):
    assert list(gpus_of(text)) == found


def test_amounts_of_tres():
    assert tres_of("cpu=16,mem=1.5G,node=2,gres/gpu=8") == {"cpu": 16, "mem": 1536, "node": 2, "gres/gpu": 8}
    assert tres_of("mem=2000000M") == {"mem": 2_000_000}
    assert tres_of(None) == {}


def test_lists_may_be_texts():
    assert words("a,b[1,2],c") == ["a", "b[1,2]", "c"]
    assert words(["a", "b"]) == ["a", "b"]


def test_the_examples_are_true():
    assert doctest.testmod(values) == (0, 7)
