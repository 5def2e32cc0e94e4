"""Which signatures of a plan count: one for each approver, of this plan, for this cluster, by a valid key."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuplan.models.errors import UnapprovedError
from gpuplan.models.policy.approval import Approval
from gpuplan.planner.approval.approval_check import ApprovalCheck, unapproved_message
from gpuplan.planner.approval.approver_keys import ApproverKey
from gpuplan.planner.approval.ssh_signatures import fingerprint
from tests.support.builders.approval_keys import public_bytes, public_line, signature_of
from tests.support.output.golden import golden
from tests.support.samples.apply_world import PLAN

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SUM = "5e" * 32
HERE = "simulated 0123456789abcdef"
PLANNED = PLAN.model_copy(update={"planned_by": "carl@login1"})

KEYS = (
    ApproverKey("ann@example.org", public_bytes(1)),
    ApproverKey("bob", public_bytes(2)),
    ApproverKey("carl@example.org", public_bytes(3)),
    ApproverKey("dora", public_bytes(4), valid_before=NOW),
    ApproverKey("emil", public_bytes(5), valid_after=NOW + HOUR),
    ApproverKey("fay", public_bytes(6)),
    ApproverKey("bob", public_bytes(7)),
    ApproverKey("gus", public_bytes(8), others=frozenset(["Carl@lab"])),
)


def check(*signatures, needed=2, **rules):
    given = {"most_changes": 0, "signatures": needed, "allowed_signers": "signers"} | rules
    return ApprovalCheck(Approval.model_validate(given), KEYS, SUM, signatures, "plan.json")


def signed(number, *, plan=PLANNED, checksum=SUM, cluster=HERE, **changed):
    return signature_of(plan, checksum, cluster, number, **changed)


def refusals(*signatures, **rules):
    return [each.refusal for each in check(*signatures, **rules).state(PLANNED, HERE, NOW).signatures]


def test_two_approvers_approve_a_plan_and_are_named():
    approvers = check(signed(1), signed(2)).require(PLANNED, HERE, NOW)

    assert approvers == tuple(
        f"{name} {fingerprint(public_bytes(number))}" for name, number in (("ann@example.org", 1), ("bob", 2))
    )


def test_a_plan_that_needs_no_approval_needs_no_signature():
    for rules in ({"needed": 0}, {"most_changes": 3}, {"most_changes": None, "needed_for": ["preempt"]}):
        assert check(**rules).require(PLANNED, HERE, NOW) == ()


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        (signed(3), "made the plan"),
        (signed(8), "made the plan"),
        (signed(4), "has expired"),
        (signed(5), "not valid yet"),
        (signed(9), "of no approver"),
        (signed(1, checksum="ab" * 32), "of another plan"),
        (signed(1, checksum="ab" * 32).model_copy(update={"checksum": SUM}), "not of this plan"),
        (signed(1, plan=PLANNED.model_copy(update={"plan_id": "0" * 16})), "not of this plan"),
        (signed(1, cluster="simulated ff"), "for another cluster"),
        (signed(1, cluster="simulated ff").model_copy(update={"cluster": HERE}), "not of this plan on this"),
        (signed(1, signature="nothing"), "no signature"),
        (signed(1, signature=signed(1).signature.replace("U1NIU0lH", "U1NIU0lI")), "no signature"),
    ],
)
def test_a_signature_that_does_not_count_says_why(signature, why):
    (refusal,) = refusals(signature)
    assert why in refusal
    with pytest.raises(UnapprovedError) as caught:
        check(signature, signed(2)).require(PLANNED, HERE, NOW)
    assert caught.value.exit_code == 25
    assert "needs 2 signatures and has 1" in str(caught.value)


def test_a_revoked_key_counts_nowhere():
    revoked = {"revoked": [public_line(1), public_line(9)]}
    assert refusals(signed(1), signed(9), **revoked) == [
        "the key of ann@example.org is revoked",
        "the key is of no approver (revoked)",
    ]
    assert "ann@example.org" not in check(**revoked).state(PLANNED, HERE, NOW).may_sign


def test_an_approver_counts_once_with_several_keys_or_several_signatures():
    assert refusals(signed(2), signed(7), signed(2)) == ["", *["the approver has signed before"] * 2]


def test_what_the_file_says_of_the_key_does_not_count():
    assert refusals(signed(9, key=public_line(1)))[0] == "the key is of no approver"
    assert refusals(signed(1, key=public_line(9))) == [""]


def test_without_a_known_planner_no_approver_is_left_out():
    state = check(signature_of(PLAN, SUM, HERE, 3)).state(PLAN, HERE, NOW)
    assert [each.refusal for each in state.signatures] == [""]


@pytest.mark.slow
def test_exactly_the_sets_with_enough_approvers_pass():
    """200 random piles of signatures against a count by hand."""
    draw, good = random.Random(17), {1: "ann", 2: "bob", 6: "fay", 7: "bob"}
    passed = 0
    for _ in range(200):
        pile = []
        for _ in range(draw.randrange(6)):
            number = draw.randrange(1, 10)
            change = draw.choice(["", "", "", "cluster", "checksum", "signature"])
            honest = signed(number)
            other = {"cluster": "simulated ff", "checksum": "ab" * 32, "signature": signed(1).signature[:-30]}
            pile.append((number, change, honest.model_copy(update={change: other[change]} if change else {})))
        needed = draw.randrange(1, 4)
        approvers = {good[number] for number, change, _ in pile if not change and number in good}
        state = check(*(each for *_, each in pile), needed=needed).state(PLANNED, HERE, NOW)
        assert len(state.counted) == len(approvers)
        assert (state.missing == 0) == (len(approvers) >= needed)
        passed += state.missing == 0
    assert 20 < passed < 180


def test_the_sentences_of_a_refusal():
    cases = {
        "none": check(most_gpus=1),
        "some": check(signed(1), signed(4), signed(9), needed=2, needed_for=["start"]),
        "no one left": check(
            signed(1), needed=3, revoked=[public_line(number) for number in (2, 6, 7)], queues=["a"]
        ),
    }
    found = "\n".join(
        f"{name}\n{unapproved_message(PLANNED, each.state(PLANNED, HERE, NOW), 'my plan.json', HERE)}\n"
        for name, each in cases.items()
    )
    assert found == golden(Path(__file__).with_name("messages.golden.txt"), found)
