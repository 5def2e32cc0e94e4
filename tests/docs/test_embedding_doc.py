"""The program that the page shows runs, and prints what is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.output.markdown_blocks import fenced

PAGE = (Path(__file__).parents[2] / "docs" / "embedding.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_program_prints_what_is_shown(capsys):
    exec(compile(fenced(PAGE, "python")[0], "docs/embedding.md", "exec"), {})

    assert capsys.readouterr().out == fenced(PAGE, "text")[0]
