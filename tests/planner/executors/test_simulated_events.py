"""What befalls the simulated cluster: jobs come, nodes go and come back; all of a step or nothing of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from gpuplan.models.cluster import Gpu
from gpuplan.models.dependency import JobOutcome, Retry
from gpuplan.models.errors import PlannerError
from gpuplan.models.job import Progress
from gpuplan.planner.executors.interface import ExecutionError
from gpuplan.planner.executors.simulated import SimulatedCluster
from tests.support.builders.build import NOW, cluster, job, node, placement, replica, snapshot
from tests.support.builders.plan_builders import start

GANG = job(
    "gang",
    gpus=8,
    replicas=2,
    waited=timedelta(hours=3),
    expected_duration="2h",
    at=[replica("n0", gpus=range(8)), replica("n1", gpus=range(8))],
)
HERE = job("here", gpus=1, at=[replica("n2", gpus=[0])])
WORLD = snapshot(nodes=cluster(3), jobs=[GANG, HERE, job("waits")])
NEW = job("new", gpus=1)


@pytest.fixture
def live(tmp_path):
    with SimulatedCluster.create(tmp_path / "c.db", WORLD) as cluster_:
        yield cluster_


def test_submitted_jobs_wait(live):
    live.submit([NEW, job("other", gpus=2)])

    there = live.snapshot().job_by_name
    assert (there["new"], there["other"]) == (NEW, job("other", gpus=2))


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (job("waits"), "job 'waits' is given a second time"),
        (NEW, "job 'new' is given a second time"),
        (job("x", queue="nowhere"), "is in queue 'nowhere', which is no queue"),
        (job("x", gpus=1, at=[replica("n2", gpus=[1])]), "job x runs; expected jobs that wait"),
        (job("x").model_copy(update={"submitted_at": NOW + timedelta(hours=1)}), "job 'x'"),
    ],
)
def test_one_bad_job_keeps_all_of_them_out(live, bad, told):
    with pytest.raises(PlannerError, match=told):
        live.submit([NEW, bad])

    assert live.snapshot() == WORLD


def test_all_that_is_wrong_is_told_at_once(live):
    bad = [job("x", queue="nowhere"), job("y", queue="nowhere"), job("waits")]

    with pytest.raises(PlannerError) as refused:
        live.submit(bad)

    assert str(refused.value).count("nowhere") == 2
    assert "'waits'" in str(refused.value)


def test_what_is_wrong_in_the_cluster_already_keeps_no_job_out(tmp_path):
    odd = snapshot(nodes=cluster(1), jobs=[job("a", queue="nowhere")])
    with SimulatedCluster.create(tmp_path / "c.db", odd) as live:
        live.submit([NEW])

        assert "new" in live.snapshot().job_by_name


def test_jobs_on_a_node_that_fails_wait_again_and_leave_their_other_places(live):
    assert live.fail_node("n0") == ("gang",)

    there = live.snapshot()
    assert there.job_by_name["gang"] == GANG.model_copy(
        update={"running": None, "progress": Progress(served=16 * 3601)}
    )
    assert there.job_by_name["here"] == HERE
    assert not there.cluster.node_by_name["n0"].ready


def test_a_job_on_a_failed_node_does_not_end_meanwhile(live):
    live.fail_node("n1")

    live.advance(3 * 3600)

    assert live.finished() == ()


def test_nothing_starts_on_a_node_that_is_down_until_it_is_back(live):
    live.fail_node("n0")
    begin = start("a1", placement("waits", replica("n0")))

    with pytest.raises(ExecutionError, match="n0"):
        live.begin(begin, "p:a1")
    live.return_node("n0")
    live.begin(begin, "p:a1")

    assert live.snapshot().job_by_name["waits"].running is not None


def test_a_node_that_returns_is_as_it_was(live):
    before = live.snapshot().cluster

    live.fail_node("n0")
    live.return_node("n0")

    assert live.snapshot().cluster == before


def test_a_node_takes_a_second_to_fail_and_one_to_return(live):
    live.fail_node("n0")
    assert live.snapshot().taken_at == NOW + timedelta(seconds=1)

    live.return_node("n0")
    assert live.snapshot().taken_at == NOW + timedelta(seconds=2)


def test_what_ends_in_the_second_in_which_a_node_fails_has_ended(live):
    live.advance(2 * 3600 - 1)

    assert live.fail_node("n0") == ()
    assert [name for name, _ in live.finished()] == ["gang"]


@pytest.mark.parametrize(
    ("deed", "node", "told"),
    [
        ("fail_node", "n9", "found none named 'n9'"),
        ("return_node", "n9", "found none named 'n9'"),
        ("return_node", "n0", "expected a node that is down, found n0 up"),
    ],
)
def test_what_makes_no_sense_is_refused(live, deed, node, told):
    with pytest.raises(PlannerError, match=told):
        getattr(live, deed)(node)

    assert live.snapshot() == WORLD


def test_a_node_fails_once(live):
    live.fail_node("n0")

    with pytest.raises(PlannerError, match="found n0 down already"):
        live.fail_node("n0")


def test_a_repaired_gpu_has_no_fault_any_more(tmp_path):
    worn = node(details=[{"index": 3, "uuid": "GPU-3", "healthy": False, "fault": "XID 79"}])
    with SimulatedCluster.create(tmp_path / "c.db", snapshot(nodes=[worn])) as live_:
        live_.repair_gpu("n0", 3)

        (found,) = live_.snapshot().cluster.nodes

    assert found.gpus.by_index[3] == Gpu(index=3, uuid="GPU-3")


# --- jobs that end ------------------------------------------------------------------------------------------


def tried(**rule):
    """A cluster with one running job that is tried again by a rule, an hour after it began."""
    again = Retry(**rule) if rule else None
    saved = NOW - timedelta(minutes=10)
    runs = job("a", gpus=1, at=[replica("n0", gpus=[0])], expected_duration="3h", retry=again)
    runs = runs.model_copy(
        update={"running": runs.running.model_copy(update={"last_checkpoint_at": saved}), "failures": 1}
    )
    return snapshot(nodes=cluster(1), jobs=[runs])


@pytest.fixture
def of(tmp_path):
    """Make a cluster in the state of a snapshot."""
    opened = []

    def make(world):
        opened.append(SimulatedCluster.create(tmp_path / f"{len(opened)}.db", world))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def test_a_job_that_fails_waits_again_with_what_it_saved(of):
    live = of(tried(max=2, backoff="1m"))

    assert live.end_job("a", JobOutcome.FAILED)

    waits, now = live.snapshot().job_by_name["a"], NOW + timedelta(seconds=1)
    assert (waits.running, waits.failures, waits.failed_at, waits.preemptions) == (None, 2, now, 0)
    assert waits.progress.completed_milli == 50 * 60 * 1000
    assert waits.begins_at == now + timedelta(minutes=2)
    with pytest.raises(ExecutionError, match="its back-off, which ends at 2026-11-20T12:02:01Z"):
        live.begin(start("a", placement("a", replica(gpus=[0]))), "k")
    live.advance(120)
    live.begin(start("a", placement("a", replica(gpus=[0]))), "k")


@pytest.mark.parametrize("rule", [{}, {"when": "never"}, {"max": 1}, {"when": "always", "max": 1}])
def test_a_job_without_a_retry_left_has_failed(of, rule):
    live = of(tried(**rule))

    assert not live.end_job("a", JobOutcome.FAILED)
    assert [(each.name, each.outcome) for each in live.snapshot().finished] == [("a", JobOutcome.FAILED)]


@pytest.mark.parametrize(("rule", "again"), [({}, False), ({"max": 9}, False), ({"when": "always"}, True)])
def test_after_a_success_only_a_job_that_always_runs_begins_anew(of, rule, again):
    live = of(tried(**rule))

    assert live.end_job("a", JobOutcome.SUCCEEDED) is again

    there = live.snapshot().job_by_name.get("a")
    assert (there is not None) is again
    if there:
        now = NOW + timedelta(seconds=1)
        assert (there.progress, there.failures, there.submitted_at) == (None, 0, now)


def test_a_job_that_always_runs_begins_anew_when_its_time_is_over(of):
    live = of(tried(when="always"))

    live.advance(3 * 3600)

    waits = live.snapshot().job_by_name["a"]
    assert (waits.running, waits.submitted_at) == (None, NOW + timedelta(hours=2))


def test_a_job_without_a_retry_left_does_not_start(of):
    used_up = job("a", gpus=1, retry=Retry(max=1), failures=2)
    live = of(snapshot(nodes=cluster(1), jobs=[used_up]))

    with pytest.raises(ExecutionError, match="found 2 failures"):
        live.begin(start("a", placement("a", replica(gpus=[0]))), "k")


@pytest.mark.parametrize(("name", "found"), [("none", "no such job"), ("waits", "it waiting")])
def test_only_a_job_that_runs_ends(live, name, found):
    with pytest.raises(PlannerError, match=f"expected job {name} to run, found {found}"):
        live.end_job(name, JobOutcome.FAILED)
