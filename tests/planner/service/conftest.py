"""Runs on a simulated cluster, with everything around them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.builders.build import cluster, job, snapshot
from tests.support.doubles.periodic_service import Bench

WORLD = snapshot(
    nodes=cluster(2),
    jobs=[job("a", gpus=8), job("b", gpus=8, waited=timedelta(hours=1)), job("c", gpus=8)],
)


@pytest.fixture
def bench(tmp_path):
    """Make benches in one folder; unless said otherwise two jobs may start and a third waits."""
    made = []

    def make(world=WORLD, **about):
        made.append(Bench(tmp_path, world, **about))
        return made[-1]

    yield make
    for each in made:
        each.close()
