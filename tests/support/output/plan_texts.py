"""Plans and diffs as text on a terminal of 80 columns, and a plan with many actions."""

from __future__ import annotations

import re
from textwrap import dedent

from gpuplan.planner.render.plan.diff import diff_text
from gpuplan.planner.render.plan.text import plan_text
from gpuplan.planner.render.style import Style
from tests.support.builders.build import cluster, job, placement, queue, replica, snapshot
from tests.support.samples.sample_plans import small_plan

COLOURS = re.compile(r"\x1b\[\d+m")

HEAD = """\
Plan 7c1e55aa  epoch 2026-11-20T12:00:00Z  snapshot 9f3a9f3a  policy 1d201d20
"""


def text(plan, *, width=80, colour=False, ascii_only=False, verbose=False, path="plan.json"):
    return plan_text(
        plan, Style(width=width, colour=colour, ascii_only=ascii_only), verbose=verbose, path=path
    )


def text_of_diff(found, *, width=80, colour=False, ascii_only=False, verbose=False, path="plan.json"):
    return diff_text(
        found, Style(width=width, colour=colour, ascii_only=ascii_only), verbose=verbose, path=path
    )


def shown(golden):
    return dedent(golden).removeprefix("\n")


def crowd():
    """Hundreds of starts and waits."""
    jobs = [
        *(job(f"share-{index:03d}", milli=250, queue=f"q{index % 3}") for index in range(240)),
        *(job(f"big-{index:02d}", gpus=8, queue="q0") for index in range(60)),
        *(job(f"held-{index:02d}", gpus=1, queue="q1", held=True) for index in range(30)),
    ]
    nodes = cluster(30)
    started = [
        *(
            placement(f"share-{index:03d}", replica(f"n{index // 32}", gpus=[index // 4 % 8], milli=250))
            for index in range(200)
        ),
        *(placement(f"big-{index:02d}", replica(f"n{index + 7}", gpus=range(8))) for index in range(23)),
    ]
    queues = [queue("q0", nominal=100), queue("q1"), queue("q2")]
    return small_plan(snapshot(nodes=nodes, jobs=jobs, queues=queues), started)
