from __future__ import annotations

import re

import pytest

from gpuplan.planner.render.reports.cluster_map import MOST_LARGE, group_by_zone, nodes_text
from gpuplan.planner.render.reports.nodes import node_pictures
from gpuplan.planner.render.reports.plan import plan_report
from tests.support.builders.build import cluster, job, node, placement, replica, snapshot
from tests.support.builders.solution_builders import drafted
from tests.support.output.html_pages import Page


def test_nodes_stand_in_their_racks_and_zones():
    nodes = [
        node("a", rack="r1", zone="z1"),
        node("b", rack="r1", zone="z2"),
        node("c", rack="r1", zone="z1"),
        node("d"),
    ]

    found = group_by_zone(node_pictures(drafted(snapshot(nodes=nodes))))

    stand = {
        zone.name: {rack.name: [each.name for each in rack.nodes] for rack in zone.racks} for zone in found
    }
    assert stand == {"": {"": ["d"]}, "z1": {"r1": ["a", "c"]}, "z2": {"r1": ["b"]}}


def test_zones_and_racks_are_told_in_words():
    nodes = [node("a", rack="r1", zone="z1"), node("b", rack="r1", zone="z1"), node("c", zone="z2", gpus=0)]
    world = snapshot(nodes=nodes, jobs=[job("comes", gpus=8)])

    first, second = group_by_zone(
        node_pictures(drafted(world, placement("comes", replica("a", gpus=range(8)))))
    )

    assert nodes_text(first.nodes) == "2 nodes, 0 → 8 of 16 GPUs in use"
    assert nodes_text(second.nodes) == "1 node without GPUs"


def test_few_nodes_are_drawn_large_and_many_as_their_racks_stand():
    few = plan_report(drafted(snapshot(nodes=cluster(MOST_LARGE))))
    many = plan_report(drafted(snapshot(nodes=cluster(MOST_LARGE + 1))))

    assert (few.count('<svg class="large"'), few.count('<svg class="column"')) == (MOST_LARGE, 0)
    assert (many.count('<svg class="large"'), many.count("<g><title>n")) == (0, MOST_LARGE + 1)


def test_every_node_of_a_large_cluster_is_told_in_words_too():
    waiting = [job("comes", gpus=8)]
    world = snapshot(nodes=cluster(40), jobs=waiting)
    found = Page(plan_report(drafted(world, placement("comes", replica("n7", gpus=range(8))))))

    assert re.search("n7 [^ ]* ?0 → 8 of 8 GPUs [+] comes", found.text)
    assert "n7: 0 → 8 of 8 GPUs; + comes" in found.text


def test_racks_in_which_nothing_happens_are_folded():
    nodes = [node(f"n{index}", rack=f"r{index // 4}") for index in range(40)]
    world = snapshot(nodes=nodes, jobs=[job("comes", gpus=8)])
    html = plan_report(drafted(world, placement("comes", replica("n7", gpus=range(8)))))

    folded = html[html.index("<summary>9 racks unchanged") :]
    assert "n8: 0 of 8 GPUs" in folded
    assert "n7: 0 → 8" not in folded[: folded.index("</details>")]
    assert re.search(r"9 racks unchanged <span class=\"quiet\">r\[0,2-9\]", html)


@pytest.mark.slow
def test_a_large_cluster_is_a_small_file():
    nodes = [
        node(f"node-{index:04d}", rack=f"r{index // 16}", zone=f"z{index // 500}") for index in range(1500)
    ]
    jobs = [job(f"job-{index:04d}", gpus=8) for index in range(1500)]
    placed = [
        placement(f"job-{index:04d}", replica(f"node-{index:04d}", gpus=range(8))) for index in range(1500)
    ]

    html = plan_report(drafted(snapshot(nodes=nodes, jobs=jobs), *placed))

    assert len(html.encode()) < 3_000_000
    assert html.count("<svg") < 200
