"""The texts that a plan's id is a hash of are those of its parts, however they are put together."""

from __future__ import annotations

import itertools
import json

import pytest

from gpuplan.models.base import canonical_json, fast_encoder, fingerprint_of
from gpuplan.models.json_frame import CANONICAL, LINES, job_texts
from gpuplan.models.plan.actions import Keep, Start, Wait
from gpuplan.models.plan.plan import Waiting
from gpuplan.models.plan.precondition import Free, JobWaits, NodeEmpty
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.epoch import plan_epoch
from gpuplan.planner.plan_file.part_texts import part_texts
from gpuplan.planner.plan_file.plan_file import plan_file_text
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


FREE = Free(node="n0", gpus=PLACE.replicas[0].gpus, cpu_milli=4, memory_mib=1)
START = {
    "id": "start/a",
    "job": "a",
    "after": PLACE,
    "reason": WORDS,
    "preconditions": (JobWaits(job="a", job_fingerprint="%(job)s"), FREE),
}


def assert_texts(plan):
    for name, texts in part_texts(plan, CANONICAL).items():
        parts = getattr(plan, name)
        assert list(texts) == [canonical_json(part.model_dump(mode="json")) for part in parts], name
    for name, texts in part_texts(plan, LINES).items():
        for text, part in zip(texts, getattr(plan, name), strict=True):
            document = part.model_dump(mode="json")
            assert json.loads(text) == document
            last = "reason" if name == "actions" else list(document)[-1]
            assert text == json.dumps(json.loads(text), ensure_ascii=False)
            assert list(json.loads(text))[-1] == last
    for job, text in zip(plan.snapshot.jobs, job_texts(plan.snapshot.jobs, LINES), strict=True):
        assert text == json.dumps(job.document(), ensure_ascii=False)
        assert job.canonical_text == canonical_json(job.document())


@pytest.mark.slow
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
        {"preconditions": ()},
        {"after_actions": ("preempt/b", "preempt/c")},
        {"kill_at": build.NOW},
        {"recovery": 60},
        {"reason": WORDS.model_copy(update={"text": "100 %s"})},
        {"preconditions": (FREE, NodeEmpty(node="n0"))},
        {"preconditions": (FREE.model_copy(update={"resources": {"nic": 1}}),)},
        *(
            {"preconditions": (FREE.model_copy(update=each),)}
            for each in (
                {"node": "n1"},
                {"gpus": ()},
                {"cpu_milli": 5},
                {"memory_mib": 2},
                {"disk_mib": 3},
            )
        ),
        *(
            {"after": build.placement("a", each)}
            for each in (
                build.replica("n1", gpus=[0]),
                build.replica("n0", gpus=[1]),
                build.replica("n0", gpus=[0], cpus=3),
                PLACE.replicas[0].model_copy(update={"resources": {"nic": 1}}),
            )
        ),
        {"after": PLACE.model_copy(update={"slot": 1})},
    ],
)
def test_whatever_is_said_of_a_start_is_in_its_text_also_beside_the_usual_one(said):
    actions = tuple(Start(**START | each) for each in ({}, said, {}))

    assert_texts(PLAN.model_copy(update={"actions": actions}))


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"projected_start": build.NOW},
        {"promised": True},
        {"earlier_promise": build.NOW},
        {"promise_changed": "put off"},
        {"waits_for": "until b ends"},
        {"remaining": 60},
    ],
)
def test_whatever_is_said_of_a_job_that_waits_is_in_its_text(said):
    assert_texts(PLAN.model_copy(update={"waiting": (Waiting(job="a", reason=WORDS, **said),)}))


@pytest.mark.slow
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
