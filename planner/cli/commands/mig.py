"""`gpuplan mig`: MIG layouts as files of nvidia-mig-parted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gpuplan.planner.cli.options import ANY_PATH, PlanFile, is_saved_plan
from gpuplan.planner.cli.outputs import json_option, say, show_json

if TYPE_CHECKING:
    from gpuplan.planner.sources.mig_parted import Layout


@click.group("mig", epilog="Example: gpuplan mig export plan.json > mig.yaml")
def mig_group() -> None:
    """Write and check configuration files of nvidia-mig-parted."""


@mig_group.command("export", epilog="Example: gpuplan mig export plan.json > mig.yaml")
@click.argument("source", type=PlanFile())
def mig_export_command(source: str) -> None:
    """
    Print the MIG layouts of SOURCE as a configuration file.

    SOURCE is a saved plan, for the layouts after it, or a snapshot. The file has one configuration for each
    node with a GPU in MIG mode, before or after the plan.
    """
    from gpuplan.planner.sources.mig_parted import mig_parted_text

    say(mig_parted_text(_layouts(source)), nl=False)


@mig_group.command("check", epilog="Example: gpuplan mig check mig.yaml scenarios/quickstart")
@click.argument("file", type=ANY_PATH)
@click.argument("source", type=ANY_PATH)
@json_option
def mig_check_command(file: str, source: str, *, as_json: bool) -> int:
    """
    Compare the MIG layouts in SOURCE with a configuration file.

    Each configuration is of the node with its name. Counts are compared, as the file has no places. The exit
    code is 1 if a GPU has another layout.
    """
    from gpuplan.planner.sources.files import load_snapshot
    from gpuplan.planner.sources.mig_parted import layout_text, layouts_of, read_mig_parted
    from gpuplan.planner.text_format import format_count

    nodes = load_snapshot(source).cluster.node_by_name
    wanted = read_mig_parted(file, nodes)
    found = {name: layouts_of(nodes[name]) for name in wanted}
    others = [
        {
            "node": name,
            "gpu": index,
            "expected": layout_text(layout),
            "found": layout_text(found[name][index]),
        }
        for name, layouts in wanted.items()
        for index, layout in sorted(layouts.items())
        if found[name][index] != layout
    ]
    if as_json:
        show_json({"same": not others, "differences": others})
        return 1 if others else 0
    for each in others:
        say(f"{each['node']} GPU {each['gpu']}: expected {each['expected']}, found {each['found']}")
    if not others:
        gpus = format_count(sum(map(len, wanted.values())), "GPU")
        say(f"The same: {gpus} of {format_count(len(wanted), 'node')}.")
    return 1 if others else 0


def _layouts(source: str) -> dict[str, dict[int, Layout]]:
    """Layouts of the nodes that have a GPU in MIG mode; of a plan before or after it."""
    from gpuplan.planner.plan_file.plan_file import load_plan
    from gpuplan.planner.sources.files import load_snapshot
    from gpuplan.planner.sources.mig_parted import layouts_of

    if not is_saved_plan(source):
        found = {node.name: layouts_of(node) for node in load_snapshot(source).cluster.nodes}
        return {
            name: layouts
            for name, layouts in found.items()
            if any(each is not None for each in layouts.values())
        }
    plan = load_plan(source)
    nodes = plan.snapshot.cluster.node_by_name
    after = {
        state.name: layouts_of(nodes[state.name], state.mig) for state in plan.nodes if state.name in nodes
    }
    return {
        name: layouts
        for name, layouts in after.items()
        if any(each is not None for each in (*layouts.values(), *layouts_of(nodes[name]).values()))
    }
