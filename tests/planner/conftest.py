"""For tests of files and of applying."""

from __future__ import annotations

from textwrap import dedent

import pytest
from documented import BASE

from planner.models.errors import BadInputError
from planner.sources.files import load_snapshot


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Put files into the working directory."""
    monkeypatch.chdir(tmp_path)

    def put(**texts):
        for name, text in texts.items():
            (tmp_path / name.replace("__", ".")).write_text(dedent(text))

    return put


@pytest.fixture
def told(put):
    """All problems of a snapshot with these jobs, one text."""

    def told(jobs, base=BASE):
        put(base__yaml=base, jobs__yaml=jobs)
        with pytest.raises(BadInputError) as caught:
            load_snapshot(".")
        return str(caught.value)

    return told
