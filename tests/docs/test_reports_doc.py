"""docs/reports.md: its commands write reports, its pictures are there and small."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
TEXT = (DOCS / "reports.md").read_text(encoding="utf-8")
COMMANDS = re.search(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)[1].splitlines()
PICTURES = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", TEXT)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_write_reports(command, tmp_path):
    words = [word.replace("scenarios/", f"{ROOT}/scenarios/") for word in command.split()[1:]]
    done = run_command(words, folder=tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / words[-1]).read_text(encoding="utf-8").endswith("</html>")


def test_pictures_are_there_and_small():
    sizes = {name: (DOCS / name).stat().st_size for name in PICTURES}

    assert sizes
    assert max(sizes.values()) < 300_000


def test_every_picture_of_a_report_is_shown():
    there = {f"images/{path.name}" for path in (DOCS / "images").glob("report-*")}

    assert there == set(PICTURES)
