"""Policies, and other nouns that stand alone, from files."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.models.job import ResourceRequest
from gpuplan.models.policy.policy import Policy
from gpuplan.models.queue import Quota
from gpuplan.planner.sources.files import default_policy_path, load_noun, load_policy
from tests.support.samples.small_document import BASE


def test_a_policy_is_read_with_its_own_names(put):
    put(policy__yaml="weights: {basis: job}\nbudget: {time_limit: 1s}\nsolvers: [cpsat]\n")

    found = load_policy("policy.yaml")

    assert (found.weights.basis, found.budget.time_limit_ms, found.solvers) == ("job", 1000, ("cpsat",))


def test_without_a_file_the_policy_is_the_default():
    assert load_policy(None) == Policy()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "policy.yaml: the file is empty; expected one policy, a mapping ({} is all defaults)."),
        (
            "{}\n---\n{}",
            "policy.yaml: the file has 2 documents; expected one policy, a mapping ({} is all defaults).",
        ),
        ("[]", "policy.yaml:1: the policy is an empty list; expected a mapping."),
        (
            "budget: {time_limit: 400d}",
            "policy.yaml:1: the policy has budget.time_limit = '400d'; expected at most 8784h.",
        ),
        (
            "budget: {time_limit: 99999999}",
            "policy.yaml:1: the policy has budget.time_limit = 99999999; expected at most 8784h.",
        ),
        (
            "drift: loose\nsolvers: [cplex]",
            "policy.yaml:2: the policy has solvers[0] = 'cplex'; expected one of 'milp', 'cpsat' or 'cbc'.",
        ),
        ("time_limit: 10s", "Maybe 'budget.time_limit' was meant."),
        ("pools: {horizon: 0s}", "policy.yaml:1: the policy has pools.horizon = '0s'; expected at least 1s."),
        (
            "profiles: {serve: tight}",
            (
                "policy.yaml:1: the policy has profiles.serve = 'tight'; "
                "expected one of 'pack', 'spread' or 'balanced'."
            ),
        ),
        (
            "prices: {interference: [{classes: [a], points: 5}]}",
            (
                "policy.yaml:1: the policy has prices.interference[0].classes = a list; "
                "expected at least 2 entries."
            ),
        ),
        (
            "prices: {interference: [{classes: [a, b, c], points: 5}]}",
            (
                "policy.yaml:1: the policy has prices.interference[0].classes = a list; "
                "expected at most 2 entries."
            ),
        ),
        ("disruption: {pre_empt: false}", "Maybe 'preempt' was meant."),
    ],
)
def test_a_wrong_policy_is_told(put, text, message):
    put(policy__yaml=text)

    with pytest.raises(BadInputError) as caught:
        load_policy("policy.yaml")

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("objective: {doubling: -1}", "1s"),
        ("objective: {shortest: -1}", "1s"),
        ("weights: {ageing: {step: -1}}", "1s"),
        ("pools: {horizon: -1}", "1s"),
        ("horizon: {backfill: {starving: -1}}", "1s"),
        ("horizon: {length: -1}", "1m"),
        ("disruption: {minimum_runtime: -1}", "0s"),
    ],
)
def test_a_negative_duration_is_told_the_least_one_that_is_allowed(put, text, least):
    put(policy__yaml=text)

    with pytest.raises(BadInputError, match=f"= -1; expected at least {least}"):
        load_policy("policy.yaml")


def test_any_noun_is_read_and_told_by_its_own_name(put):
    put(quota__yaml="nominal: x", request__yaml="gpus: x")

    for name, noun in (("quota", Quota), ("resource request", ResourceRequest)):
        with pytest.raises(BadInputError, match=f": the {name} has "):
            load_noun(f"{name.split()[-1]}.yaml", noun)


def test_a_directory_may_have_its_own_policy(put):
    put(base__yaml=BASE)
    assert default_policy_path(".") is None
    assert default_policy_path("base.yaml") is None
    assert default_policy_path("-") is None

    put(policy__yml="{}")
    assert default_policy_path(".") == "policy.yml"

    put(policy__json="{}")
    with pytest.raises(BadInputError, match=r"has 2 policies: policy\.json, policy\.yml; expected one"):
        default_policy_path(".")
