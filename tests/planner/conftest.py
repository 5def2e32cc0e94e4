"""Documents in a working directory; a simulated cluster, and the audit log of what is applied to it."""

from __future__ import annotations

from textwrap import dedent

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.executors.simulated import SimulatedCluster
from gpuplan.planner.sources.files import load_snapshot
from tests.support.samples.apply_world import WORLD
from tests.support.samples.small_document import BASE


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
    """All problems of a snapshot with these jobs, damage included, one text."""

    def told(jobs, base=BASE):
        put(base__yaml=base, jobs__yaml=jobs)
        with pytest.raises(BadInputError) as caught:
            load_snapshot(".", strict=True)
        return str(caught.value)

    return told


@pytest.fixture
def live(tmp_path):
    """The simulated cluster of `apply_world`."""
    with SimulatedCluster.create(tmp_path / "cluster.db", WORLD) as cluster:
        yield cluster


@pytest.fixture
def log(tmp_path):
    return AuditLog(tmp_path / "audit.jsonl")
