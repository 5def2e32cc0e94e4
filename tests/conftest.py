"""For tests anywhere."""

from __future__ import annotations

import gc
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest
from hypothesis import settings

from gpuplan.planner.service import loop
from gpuplan.solvers import exact_run, pipeline
from tests.support.doubles.broken_solvers import apart_in_this_process
from tests.support.harness.private_prometheus import missing_prometheus
from tests.support.harness.private_slurm import missing_slurm, private_slurm
from tests.support.harness.slurm_accounts import missing_accounts, private_accounts
from tests.support.seeds import examples

# The tests of a process keep much and leave little in cycles, so collections would mostly cost time.
gc.set_threshold(100_000, 20, 20)

# How long an example takes is up to the machine. Hypothesis looks at 100 unless a test says otherwise.
settings.register_profile("any machine", deadline=None, max_examples=examples(100))
settings.load_profile("any machine")


def pytest_collection_finish():
    """No collection looks again at modules and tests, which stay; so the rest can be collected more often."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_collection_between_epochs(monkeypatch):
    """What a run throws away between two epochs is little beside what the tests of a process keep."""
    monkeypatch.setattr(loop, "gc", SimpleNamespace(collect=lambda: 0))


@pytest.fixture(autouse=True)
def _solvers_in_this_process(request, monkeypatch):
    """
    Solvers work in this process: with small problems nearly all of the time goes into starting others.

    Tests marked `processes` are about the processes, and so are those that run commands in a shell.
    """
    if request.node.get_closest_marker("processes") is None:
        monkeypatch.setattr(exact_run, "run_in_child", apart_in_this_process)
        monkeypatch.setattr(pipeline, "run_in_child", apart_in_this_process)


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A fresh Slurm that this process and its children speak to."""
    if reason := missing_slurm():
        pytest.skip(f"Slurm: {reason}")
    # The path of a socket has at most 107 characters.
    with TemporaryDirectory(prefix="slurm-") as short, private_slurm(Path(short) / "s") as cluster:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, cluster.environment[name])
        monkeypatch.chdir(tmp_path)
        yield cluster


@pytest.fixture
def slurm_accounts(tmp_path, monkeypatch):
    """The same with accounts and their limits, which Slurm keeps."""
    if reason := missing_accounts():
        pytest.skip(f"Slurm with accounts: {reason}")
    with TemporaryDirectory(prefix="slurm-") as short, private_accounts(Path(short) / "s") as cluster:
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, cluster.environment[name])
        monkeypatch.chdir(tmp_path)
        yield cluster


@pytest.fixture
def prometheus_here():
    """Skip where no private Prometheus can be started."""
    if reason := missing_prometheus():
        pytest.skip(f"Prometheus: {reason}")
