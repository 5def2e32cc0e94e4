"""Layouts after a plan: instances in use, and the idle ones that are in no job's way."""

from __future__ import annotations

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.eligibility.free_resources import layout_after
from gpuplan.models.mig import mig_geometry
from tests.support.builders.build import layout

H100 = mig_geometry("H100-80GB")
IDLE = layout(("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 2), ("3g.40gb", 4))


@pytest.mark.parametrize(
    ("used", "after"),
    [
        ((), IDLE),
        (layout(("2g.20gb", 2)), IDLE),
        (layout(("2g.20gb", 0)), layout(("2g.20gb", 0), ("2g.20gb", 2), ("3g.40gb", 4))),
        (layout(("4g.40gb", 0)), layout(("4g.40gb", 0), ("3g.40gb", 4))),
        (layout(("1g.10gb", 5)), layout(("1g.10gb", 0), ("1g.10gb", 1), ("2g.20gb", 2), ("1g.10gb", 5))),
        (layout(("7g.80gb", 0)), layout(("7g.80gb", 0))),
    ],
)
def test_idle_instances_stay_unless_they_are_in_the_way(used, after):
    found = layout_after(Gpu(index=0, mig=IDLE), H100, used)

    assert found == after
    assert not list(H100.faults(found))


def test_idle_media_extensions_give_way_to_those_in_use():
    gpu = Gpu(index=0, mig=layout(("1g.10gb+me", 0), ("1g.10gb", 1)))

    found = layout_after(gpu, H100, layout(("1g.10gb+me", 5)))

    assert found == layout(("1g.10gb", 1), ("1g.10gb+me", 5))


def test_mig_mode_stays_off_until_an_instance_is_used():
    assert layout_after(Gpu(index=0), H100, ()) is None
    assert layout_after(Gpu(index=0), H100, layout(("1g.10gb", 3))) == layout(("1g.10gb", 3))
    assert layout_after(Gpu(index=0, mig=()), H100, ()) == ()


def test_instances_of_an_unknown_geometry_all_stay():
    assert layout_after(Gpu(index=0, mig=IDLE), None, layout(("1g.10gb", 1))) == IDLE
