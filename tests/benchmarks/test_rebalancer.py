"""The instance that Rebalancer is asked about, and how its answer is judged; the package is not needed."""

import pytest

from benchmarks import rebalancer
from gpuplan.models.units import MILLI
from gpuplan.models.verifier.verify import verify


@pytest.fixture(scope="module")
def snapshot():
    return rebalancer.snapshot_of(1)


@pytest.fixture(scope="module")
def policy():
    return rebalancer._policy(5)


@pytest.fixture(scope="module")
def question(snapshot, policy):
    return rebalancer.question(snapshot, policy)


def test_is_skipped_with_a_reason_where_the_package_is_missing(monkeypatch):
    monkeypatch.delenv(rebalancer.PYTHON, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "skipped" in rebalancer.main()


def test_an_interpreter_may_be_named(monkeypatch):
    monkeypatch.setenv(rebalancer.PYTHON, "python-with-it")
    assert rebalancer.interpreter() == "python-with-it"


@pytest.mark.slow
def test_has_only_what_both_can_say(snapshot):
    for job in snapshot.jobs:
        assert job.gang.maximum == 1
        assert job.request.gpus
        assert job.running is None
    assert all(queue.quota is None for queue in snapshot.queues)


def test_sizes_do_not_all_divide(snapshot):
    assert {3, 5, 6} <= {job.request.gpus for job in snapshot.jobs}


@pytest.mark.slow
def test_the_start_is_worth_in_its_weights_what_the_verifier_says(snapshot, policy, question):
    verification = verify(snapshot, policy, rebalancer.placements(snapshot, question["start"]))
    assert not verification.violations
    assert verification.objective == sum(question["jobs"][job]["weight"] for job in question["start"])


def test_an_overfull_node_is_seen(snapshot, policy, question):
    node = next(iter(question["nodes"]))
    allowed = [job for job, about in question["jobs"].items() if not about["barred"]]
    verification = verify(
        snapshot, policy, rebalancer.placements(snapshot, dict.fromkeys(allowed[:20], node))
    )
    assert verification.violations


def test_a_barred_model_is_seen(snapshot, policy, question):
    job = next(job for job, about in question["jobs"].items() if about["barred"])
    (model,) = question["jobs"][job]["barred"]
    node = next(name for name, about in question["nodes"].items() if about["model"] == model)
    verification = verify(snapshot, policy, rebalancer.placements(snapshot, {job: node}))
    assert verification.violations


def test_placements_hold_what_is_asked(snapshot, question):
    for placement in rebalancer.placements(snapshot, question["start"]):
        (replica,) = placement.replicas
        request = snapshot.job_by_name[placement.job].request
        assert replica.quota_milli == MILLI * request.gpus
        assert (replica.cpu_milli, replica.memory_mib) == (request.cpu_milli, request.memory_mib)
