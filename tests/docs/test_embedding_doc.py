"""The program that the page shows runs, and prints what is shown."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")


def block(kind):
    return re.search(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[1]


def test_the_program_prints_what_is_shown(capsys):
    exec(compile(block("python"), "docs/embedding.md", "exec"), {})

    assert capsys.readouterr().out == block("text")
