"""Where things stand in the drawings of nodes."""

from __future__ import annotations

import re

import pytest

from gpuplan.planner.render.reports.cluster_map import column, large_node
from gpuplan.planner.render.reports.nodes import node_pictures
from tests.support.builders.build import cluster, job, node, placement, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.samples.sample_plans import busy_plan


def picture(plan, name="n0"):
    return next(each for each in node_pictures(plan) if each.name == name)


def shapes(svg, kind):
    """Left, top, width and height of all shapes of a kind."""
    paths = re.findall(rf'<path class="{kind}" d="([^"]*)"', svg)
    corners = [re.findall(r"M([\d.-]+) ([\d.-]+)h([\d.]+)v([\d.]+)h-[\d.]+z", path) for path in paths]
    return [tuple(map(float, each)) for found in corners for each in found]


@pytest.fixture
def change():
    """A node on which a job of two GPUs gives way to one of half a GPU, beside one that stays on a third."""
    jobs = [
        job("goes", gpus=2, at=[replica(gpus=[0, 1])]),
        job("stays", gpus=1, at=[replica(gpus=[2])]),
        job("comes", milli=500),
    ]
    world = snapshot(nodes=cluster(1, gpus=4), jobs=jobs)
    plan = drafted(world, placement("comes", replica(gpus=[0], milli=500)), stopped=["goes"])
    return picture(plan)


def test_a_large_node_shows_leaving_jobs_before_and_arriving_jobs_after(change):
    before, after = large_node(change).split(">after</text>")

    assert (len(shapes(before, "leaves")), len(shapes(before, "arrives"))) == (2, 0)
    assert (len(shapes(after, "leaves")), len(shapes(after, "arrives"))) == (0, 1)
    assert len(shapes(before, "kept")) == len(shapes(after, "kept")) == 1


def test_a_small_node_shows_leaving_jobs_above_and_arriving_jobs_below(change):
    svg = column([change], "one node")
    upper = max(top + height for _, top, _, height in shapes(svg, "leaves"))
    lower = min(top for _, top, _, _ in shapes(svg, "arrives"))

    assert upper < lower
    assert len(shapes(svg, "leaves")) == 2
    assert len(shapes(svg, "kept")) == 2


def test_a_share_fills_its_part_of_the_gpu_from_the_foot(change):
    svg = column([change], "one node")
    (_, arrives_top, _, arrives_height) = shapes(svg, "arrives")[0]
    kept_top, kept_height = max((top, height) for _, top, _, height in shapes(svg, "kept"))

    assert arrives_height == pytest.approx(kept_height / 2, abs=0.1)
    assert arrives_top + arrives_height == pytest.approx(kept_top + kept_height, abs=0.1)


def test_gpus_stand_side_by_side_in_the_order_of_their_indices(change):
    lefts = [left for left, *_ in shapes(large_node(change), "free")]

    assert lefts[:4] == sorted(lefts[:4])
    assert len(set(lefts)) == 4


def test_every_part_bears_its_sign_and_its_title(change):
    svg = large_node(change)

    assert svg.count(">-</text>") == 2
    assert svg.count(">+</text>") == 1
    assert "<title>GPU 0: - goes</title>" in svg
    assert "<title>GPU 2: stays</title>" in svg


def test_a_node_of_no_change_is_drawn_once():
    svg = large_node(picture(drafted(snapshot(nodes=cluster(1, gpus=4)))))

    assert ">unchanged</text>" in svg
    assert len(shapes(svg, "free")) == 4


def test_many_gpus_take_several_rows():
    found = picture(drafted(snapshot(nodes=[node(gpus=20)])))

    for svg in (large_node(found), column([found], "one node")):
        tops = [top for _, top, _, _ in shapes(svg, "free")]
        assert len(set(tops)) in (3, 6)
        assert max(left for left, *_ in shapes(svg, "free")) < 320


def test_mig_instances_are_named_on_the_drawing():
    svg = large_node(picture(busy_plan(), "mig-1"))

    assert ">+ 3g.40gb</text>" in svg or ">3g.40gb</text>" in svg
    assert "1g.10gb" in svg


def test_nodes_that_come_go_or_are_down_bear_a_sign():
    plan = busy_plan()
    found = [picture(plan, name) for name in ("cloud-1", "old-2", "h100-04")]

    signs = re.findall(r"<text [^>]*>([^<]*)</text>", column(found, "three nodes"))
    assert signs == ["+", "−", "!"]
