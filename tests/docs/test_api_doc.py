"""The session of docs/api.md runs, and prints what is shown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import gpuplan

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
STEP = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_session_prints_what_is_shown(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    session = {}
    steps = STEP.findall(PAGE)

    assert len(steps) == PAGE.count("```python\n")
    for code, shown in steps:
        exec(compile(code, "docs/api.md", "exec"), session)
        assert capsys.readouterr().out == shown


def test_every_function_is_in_the_table():
    named = set(re.findall(r"`(\w+)\(", PAGE.split("\n## ")[0]))

    assert named == {name for name in gpuplan.__all__ if name[0].islower()}
