"""What a snapshot remembers about itself, and what may not be remembered."""

import pytest

from gpuplan.models.base import fingerprint_of
from gpuplan.models.job import Job
from tests.support.builders.build import job, node, replica, snapshot

SORTED = snapshot(nodes=[node("n0"), node("n1")], jobs=[job("a"), job("b")])


def test_a_sorted_snapshot_is_its_own_canonical_form():
    assert SORTED.canonical() is SORTED


def test_a_snapshot_in_another_order_has_an_equal_canonical_form():
    cluster = SORTED.cluster.model_copy(update={"nodes": SORTED.cluster.nodes[::-1]})
    turned = SORTED.model_copy(update={"cluster": cluster, "jobs": SORTED.jobs[::-1]})

    assert turned.canonical() is not turned
    assert turned.canonical() == SORTED


def test_replicas_in_another_order_are_put_in_order():
    places = [replica("n1", gpus=[0]), replica("n0", gpus=[0])]
    turned = SORTED.model_copy(update={"jobs": (job("a", replicas=2, at=places),)})

    ordered = turned.canonical()

    assert [each.node for each in ordered.jobs[0].running.replicas] == ["n0", "n1"]
    assert ordered.canonical() is ordered


def test_equal_snapshots_are_equal_whatever_was_looked_up_in_them():
    one, other = (snapshot(jobs=[job("a")]) for _ in range(2))
    for each in (one, other):
        each.canonical().fingerprint()

    assert one == other


def test_the_fingerprint_is_that_of_the_document():
    assert SORTED.fingerprint() == fingerprint_of(SORTED.document())


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [0, 1, 999, 1000, 1001, 2000])
def test_the_fingerprint_of_a_long_list_is_that_of_the_document(jobs):
    long = snapshot(nodes=[node("n0")], jobs=[job(f"j{number:04}") for number in range(jobs)])

    assert long.fingerprint() == fingerprint_of(long.document())


def test_fields_that_no_job_states_have_their_defaults():
    world = snapshot(jobs=[job("a", co_start="x"), job("b").model_copy(update={"held": True})])

    assert {"co_start", "held"} <= world.stated
    for name in Job.model_fields.keys() - world.stated:
        default = Job.model_fields[name].get_default(call_default_factory=True)
        assert all(getattr(each, name) == default for each in world.jobs), name


def test_a_changed_copy_forgets_document_and_fingerprint():
    before = SORTED.fingerprint()

    changed = SORTED.model_copy(update={"jobs": ()})

    assert changed.fingerprint() != before
    assert "jobs" not in changed.shared_document


def test_a_document_handed_out_may_be_changed():
    SORTED.document()["jobs"].clear()

    assert len(SORTED.shared_document["jobs"]) == 2
