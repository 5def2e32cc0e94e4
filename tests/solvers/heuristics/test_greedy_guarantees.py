"""What queues are guaranteed, and which of their jobs that is owed to."""

from __future__ import annotations

from tests.support.builders import build
from tests.support.harness.greedy_plans import plan


def test_a_job_too_large_for_its_guarantee_does_not_keep_that_of_a_sibling_unmet():
    queues = [
        build.queue("root", nominal=0),
        build.queue("large", parent="root", nominal=4, guarantee=4),
        build.queue("small", parent="root", nominal=4, guarantee=4),
    ]
    jobs = [build.job("l", gpus=8, queue="large"), build.job("s", gpus=4, queue="small")]

    assert set(plan(build.snapshot(nodes=build.cluster(1), jobs=jobs, queues=queues)).places) == {"s"}
