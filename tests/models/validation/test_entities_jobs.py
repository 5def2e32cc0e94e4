"""Consistency of jobs: queues, MIG profiles and datasets that there are, and times in order."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.placement import Running
from tests.support.builders.build import NOW, job, node, pool, queue, replica
from tests.support.builders.invalid_snapshots import found, only, told, world
from tests.support.output.golden import figures

HOUR = timedelta(hours=1)


def test_a_job_in_an_unknown_queue_is_told():
    assert found(world(jobs=[job("ok"), job("a", queue="p")])) == [(("jobs", 1, "queue"), "a p")]


def test_a_job_may_wait_in_a_queue_that_has_children():
    assert found(world(queues=[queue("q"), queue("r", parent="q")], jobs=[job("a", queue="q")])) == []


@pytest.mark.parametrize(
    ("profile", "fault"),
    [("2g.10gb", "no GPU model"), ("2g20gb", "not a MIG profile")],
)
def test_a_profile_that_nothing_offers_is_told_with_a_near_one(profile, fault):
    wants = job("a", mig={profile: 1})

    ((location, message),) = told(world(jobs=[wants]))

    assert location == ("jobs", 0, "request", "mig", profile)
    assert fault in message
    assert figures(message).startswith(f"a {profile} 1g.10gb ")
    assert figures(message).endswith(" H100-80GB 2g.20gb")


def test_a_profile_in_a_cluster_without_mig_is_told():
    wants = job("a", mig={"1g.10gb": 1})

    ((_, message),) = told(world(nodes=[node("n0", model="T4")], jobs=[wants]))

    assert "Offered: none" in message


def test_a_profile_that_only_new_nodes_would_offer_is_offered():
    wants = job("a", mig={"1g.18gb": 1})

    assert len(found(world(jobs=[wants]))) == 1
    assert found(world(jobs=[wants], pools=[pool(template=node("t", model="H200-141GB"))])) == []


def test_a_gpu_model_that_the_cluster_lacks_is_no_contradiction():
    assert found(world(jobs=[job("a", gpus=1, gpu_models={"B200-180GB": 1})])) == []


def test_a_job_that_reads_an_unknown_dataset_is_told_with_a_near_one():
    jobs = [job("a", datasets=["corpus", "korpus"])]

    assert found(world(jobs=jobs, datasets=[{"name": "corpus"}])) == [
        (
            ("jobs", 0, "datasets", 1),
            ("a korpus corpus"),
        )
    ]
    ((_, message),) = told(world(jobs=[job("a", datasets=["x"])]))
    assert message.endswith("  Known: none.")


def ran(**times):
    return job("a", waited=2 * HOUR).model_copy(
        update={"running": Running(**{"started_at": NOW - HOUR, "replicas": (replica("n0"),)} | times)}
    )


@pytest.mark.parametrize(
    ("wrong", "location"),
    [
        (job("a", waited=-HOUR), ("submitted_at",)),
        (job("a", deadline=NOW - HOUR), ("deadline",)),
        (ran(started_at=NOW + HOUR), ("running", "started_at")),
        (ran(last_checkpoint_at=NOW + HOUR), ("running", "last_checkpoint_at")),
        (ran(resized_at=NOW + HOUR), ("running", "resized_at")),
    ],
)
def test_a_time_out_of_order_is_told(wrong, location):
    assert only(world(jobs=[wrong])).location == ("jobs", 0, *location)


@pytest.mark.parametrize(
    ("ready_at", "legal"), [(None, False), (NOW, False), (NOW + timedelta(seconds=1), True)]
)
def test_a_job_may_start_later_only_where_its_node_is_still_coming(ready_at, legal):
    nodes = [node("n0", ready_at=ready_at), node("n1", ready_at=NOW + HOUR)]
    soon = ran(started_at=NOW + timedelta(minutes=3))

    assert (found(world(nodes=nodes, jobs=[soon])) == []) == legal


def test_one_node_that_is_still_coming_keeps_a_gang_waiting():
    gang = ran(started_at=NOW + HOUR, replicas=(replica("n0"), replica("n1")))
    gang = gang.model_copy(update={"gang": job(replicas=2).gang})

    assert found(world(nodes=[node("n0"), node("n1", ready_at=NOW + HOUR)], jobs=[gang])) == []


def test_times_at_the_instant_of_the_snapshot_are_in_order():
    begun = ran(started_at=NOW, last_checkpoint_at=NOW, resized_at=NOW)
    assert found(world(jobs=[begun, job("b", deadline=NOW)])) == []


def test_a_deadline_that_has_passed_is_no_contradiction():
    assert found(world(jobs=[job("a", waited=2 * HOUR, deadline=NOW - HOUR)])) == []
