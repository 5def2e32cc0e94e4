from datetime import timedelta

import pytest

from gpuplan.models.dependency import Retry, latest
from tests.support.builders.build import NOW, job, replica


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 360), (60, 360), (10**6, 360)]
)
def test_the_back_off_doubles_up_to_its_longest(failures, seconds):
    assert Retry().wait(failures) == timedelta(seconds=seconds)


def test_without_a_back_off_there_is_none():
    assert Retry(backoff=0).wait(9) == timedelta(0)


@pytest.mark.parametrize(
    ("when", "most", "failures", "used_up"),
    [
        ("never", 6, 0, False),
        ("never", 6, 1, True),
        ("on-failure", 2, 2, False),
        ("on-failure", 2, 3, True),
        ("always", 0, 1, True),
        ("always", 1, 1, False),
    ],
)
def test_so_many_failures_use_the_retries_up(when, most, failures, used_up):
    assert Retry(when=when, max=most).is_used_up(failures) is used_up


def test_the_longest_back_off_is_not_shorter_than_the_first():
    assert Retry(backoff="10m").wait(1) == Retry(backoff="10m").wait(5) == timedelta(minutes=10)


def failed(failures, minutes_ago=0, **more):
    ago = NOW - timedelta(minutes=minutes_ago)
    return job("a", gpus=1, retry=Retry(max=2, backoff=60), failures=failures, failed_at=ago, **more)


def test_a_job_begins_after_its_back_off_and_its_requested_start():
    soon = NOW + timedelta(seconds=90)

    assert failed(0).begins_at is None
    assert failed(1).begins_at == NOW + timedelta(minutes=1)
    assert failed(2, minutes_ago=1).begins_at == NOW + timedelta(minutes=1)
    assert failed(1, not_before=soon).begins_at == soon
    assert failed(2, not_before=soon).begins_at == NOW + timedelta(minutes=2)
    assert job("a", failures=3, failed_at=NOW).begins_at is None
    assert failed(1, at=[replica(gpus=[0])]).begins_at is None


def test_a_job_is_withheld_if_a_user_holds_it_or_no_retry_is_left():
    assert not failed(2).withheld
    assert failed(3).withheld
    assert failed(0, held=True).withheld
    assert not job("a", failures=99).withheld


def test_the_latest_of_nothing_is_nothing():
    assert latest(None, None) is None
    assert latest(NOW, None, NOW - timedelta(1)) == NOW


def test_a_job_with_its_defaults_has_the_document_that_it_had():
    assert job("a", gpus=1).document().keys().isdisjoint({"retry", "failures", "failed_at"})
    assert failed(1).document()["retry"] == {"max": 2, "backoff": "1m"}
