"""The texts that a plan's id is a hash of are those of its parts, however they are put together."""

from __future__ import annotations

import itertools
import json

import pytest

from gpuplan.models.base import canonical_json, fast_encoder, fingerprint_of
from gpuplan.models.plan.actions import Keep, Wait
from gpuplan.models.plan.plan import Waiting
from gpuplan.models.plan.precondition import NodeEmpty
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.plan_file.plan_file import part_texts, plan_file_text
from tests.support.builders import build
from tests.support.builders.plan_builders import plan_id_of, plan_of
from tests.support.builders.solution_builders import drafted
from tests.support.oracles.plan_document import plan_document
from tests.support.strategies import instances

KINDS = (instances.mixed, instances.everything, instances.everything_mixed)
WORDS = Reason(
    code=ReasonCode.RESOURCES, text='needs "8" GPUs – 5.1 free\n', numbers={"needed": 8, "free": 5.1}
)
PLAN = plan_of(build.snapshot())
PLACE = build.placement("a", build.replica("n0", gpus=[0]))


def assert_texts(plan):
    for name, texts in part_texts(plan).items():
        parts = getattr(plan, name)
        assert list(texts) == [canonical_json(part.model_dump(mode="json")) for part in parts], name


@pytest.mark.parametrize(("kind", "seed"), list(itertools.product(KINDS, range(4))))
def test_texts_id_and_file_are_those_of_the_document(kind, seed):
    instance = kind(seed)
    snapshot = getattr(instance, "snapshot", instance)
    policy = getattr(instance, "policy", instances.POLICY).model_copy(update={"solvers": ()})

    plan = plan_epoch(snapshot, policy, seed=0, created_at=snapshot.taken_at)

    document = plan_document(plan)
    assert_texts(plan)
    assert plan.plan_id == plan_id_of(document)
    assert json.loads(plan_file_text(plan)) == document
    assert document.pop("checksum") == fingerprint_of(document)


@pytest.mark.parametrize(
    "action",
    [
        Wait(id="wait/a", job="a", reason=WORDS),
        Wait(id="wait/a", job="a", reason=WORDS, after_actions=("start/b",)),
        Keep(id="keep/a", job="a", before=PLACE, after=PLACE, reason=WORDS),
        Keep(id="keep/a", job="a", before=PLACE, after=build.placement("a", build.replica()), reason=WORDS),
        Keep(
            id="keep/a",
            job="a",
            before=PLACE,
            after=PLACE,
            reason=WORDS,
            preconditions=(NodeEmpty(node="n0"),),
        ),
    ],
)
def test_whatever_is_said_of_a_job_at_rest_is_in_its_text(action):
    assert_texts(PLAN.model_copy(update={"actions": (action,)}))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"projected_start": build.NOW},
        {"promised": True},
        {"earlier_promise": build.NOW},
        {"promise_changed": "put off"},
        {"waits_for": "until b ends"},
    ],
)
def test_whatever_is_said_of_a_job_that_waits_is_in_its_text(said):
    assert_texts(PLAN.model_copy(update={"waiting": (Waiting(job="a", reason=WORDS, **said),)}))


def test_a_list_longer_than_a_piece_is_hashed_whole():
    jobs = [build.job(f"j{number}", gpus=1, held=True) for number in range(2500)]
    plan = drafted(build.snapshot(jobs=jobs), policy=Policy())

    assert plan.plan_id == plan_id_of(plan_document(plan))


@pytest.mark.parametrize(
    "make",
    [
        None,
        lambda: None,
        lambda *_: None,
        lambda *_: lambda value: [str(value)],
        lambda *_: lambda *_: ["{}"],
    ],
    ids=["missing", "other arguments", "nothing", "other calls", "another text"],
)
def test_an_encoder_that_is_not_as_known_is_not_used(make):
    assert fast_encoder(make) is None
    assert fast_encoder(json.encoder.c_make_encoder)
