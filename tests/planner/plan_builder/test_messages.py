"""The sentences of two sample plans, in messages.golden.txt; other tests assert codes and numbers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.output.golden import golden
from tests.support.samples.horizon_plans import timely_plan
from tests.support.samples.sample_plans import busy_plan


def reason_lines(subject, reason):
    yield f"{subject}  {reason.code}: {reason.text}"
    if reason.numbers:
        yield f"    {json.dumps(reason.numbers, ensure_ascii=False)}"


def lines(plan):
    """The reason of each step, and why each job waits, until when, and why its promise changed."""
    for action in plan.actions:
        if action.type not in ("keep", "wait"):
            yield from reason_lines(action.id, action.reason)
    for each in plan.waiting:
        yield from reason_lines(each.job, each.reason)
        yield from (f"    {text}" for text in (each.waits_for, each.promise_changed) if text)


def test_the_sentences_of_plans():
    found = "".join(f"{line}\n" for plan in (busy_plan(), timely_plan()) for line in lines(plan))

    assert found == golden(Path(__file__).with_name("messages.golden.txt"), found)
