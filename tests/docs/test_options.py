"""Pages for operators name no option that gpuplan does not have."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from gpuplan.planner.cli import cli

ROOT = Path(__file__).parents[2]
PAGES = ("approval", "explaining", "local", "operations", "reports", "running", "simulation", "whatif")


def options(command):
    for param in command.params:
        yield from (*param.opts, *param.secondary_opts)
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        yield from options(inner)


@pytest.mark.parametrize("page", PAGES)
def test_every_option_is_there(page):
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))

    assert named - {"--help", "--version", *options(cli)} == set()
