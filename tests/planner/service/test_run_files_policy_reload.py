"""The policy file may change while a run goes on; what cannot be read changes nothing."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.models.policy.policy import BudgetPolicy, Disruption, Policy, Prices, Profile
from gpuplan.planner.service.run_files import LastReadPolicy, knob_changes, policy_reader
from gpuplan.planner.sources.files import load_policy


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text("disruption: {preempt: false}\n")
    return path


def in_force(path):
    return LastReadPolicy(lambda: load_policy(str(path)))


def test_a_change_is_in_force_at_once_and_told_once(file):
    policy = in_force(file)
    assert policy.reread() == ()

    file.write_text("disruption: {preempt: true}\nprices: {resize: 11}\n")
    changes = {change.knob: (change.old, change.new) for change in policy.reread()}

    assert changes == {"disruption.preempt": (False, True), "prices.resize": (10, 11)}
    assert policy.policy.prices.resize == 11
    assert policy.reread() == ()


def test_a_broken_file_leaves_the_last_good_policy_in_force_until_it_is_mended(file):
    policy = in_force(file)
    good = policy.policy

    file.write_text("disruption: {preempt: maybe}\nprizes: {}\n")
    assert policy.reread() == ()
    assert policy.policy is good
    assert "policy.yaml:1" in policy.error
    assert "prizes" in policy.error

    file.write_text("disruption: {preempt: false}\n")
    assert policy.reread() == ()
    assert policy.error == ""


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe{}",
        b"prices: {resize: " + b"9" * 1000 + b"}",
        b'{"prices": {"resize": ' + b"9" * 1000 + b"}}",
        b'{"prices": {"resize": 1e999}}',
        b"[" * 100_000,
        b"budget: {time_limit: " + b"9" * 5000 + b"d}",
        b"a: &a [*a]",
    ],
)
def test_no_content_of_the_file_takes_the_last_good_policy_away(file, content):
    policy = in_force(file)
    good = policy.policy

    file.write_bytes(content)

    assert policy.reread() == ()
    assert policy.policy is good
    assert policy.error


@pytest.mark.parametrize(
    "fault", [MemoryError(), OSError("x"), RecursionError(), ValueError(), KeyError("a")]
)
def test_no_failure_of_reading_takes_the_last_good_policy_away(fault):
    readings = iter([Policy()])

    def read():
        for policy in readings:
            return policy
        raise fault

    policy = LastReadPolicy(read)

    assert policy.reread() == ()
    assert policy.policy == Policy()
    assert type(fault).__name__ in policy.error


def test_a_file_that_is_gone_is_broken_too(file):
    policy = in_force(file)
    file.unlink()

    policy.reread()

    assert policy.error
    assert not policy.policy.disruption.preempt


def test_the_policy_of_a_folder_does_not_lapse_with_its_file(file):
    policy = LastReadPolicy(policy_reader(None, str(file.parent)))
    text = file.read_text()

    file.unlink()
    assert policy.reread() == ()
    assert "policy.yaml" in policy.error
    assert not policy.policy.disruption.preempt

    file.with_name("policy.yml").write_text(text)
    assert policy.reread() == ()
    assert policy.error == ""


def test_a_folder_without_a_policy_has_the_default_one_until_there_is_one(tmp_path):
    policy = LastReadPolicy(policy_reader(None, str(tmp_path)))
    assert policy.policy == Policy()

    (tmp_path / "policy.yaml").write_text("disruption: {preempt: false}\n")

    assert [change.knob for change in policy.reread()] == ["disruption.preempt"]


def test_what_has_changed_since_an_earlier_run_is_told_once(file):
    policy = in_force(file)

    policy.compare_with(Policy())

    assert [change.knob for change in policy.reread()] == ["disruption.preempt"]
    assert policy.reread() == ()


def test_a_run_does_not_begin_with_a_broken_policy(file):
    file.write_text("[]")

    with pytest.raises(BadInputError):
        in_force(file)


def test_durations_and_lists_are_told_as_people_write_them():
    old = Policy(budget=BudgetPolicy(time_limit="10s"), disruption=Disruption(minimum_runtime="1h"))
    new = Policy(budget=BudgetPolicy(time_limit="1m"), solvers=(), profiles={"inference": Profile.SPREAD})

    found = {change.knob: (change.old, change.new) for change in knob_changes(old, new)}

    assert found == {
        "budget.time_limit": ("10s", "1m"),
        "disruption.minimum_runtime": ("1h", "0s"),
        "profiles.inference": (None, "spread"),
        "solvers": (["milp", "cpsat"], []),
    }


def test_what_is_equal_has_no_changes():
    assert knob_changes(Policy(), Policy(prices=Prices())) == ()
