"""
The formulation and the verifier, which share no code, agree about random placements.

Plain model: a family has a broken row exactly when the verifier reports the rule of that name. Block model:
every placement without violations satisfies every row. Both must notice planted bugs.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import build
import instances
import pytest

from planner.models import verifier
from planner.models.formulation import FAMILIES, formulate
from planner.models.formulation.columns import Columns
from planner.models.formulation.reference import ReferenceColumns, reference
from planner.models.placement import Placement
from planner.models.verifier import verify
from planner.models.violation import Rule
from planner.posing import pose
from planner.solvers.ledger import Ledger

COMPARED = {"gang": "gang", "staircase": "GPUs", "sharing": "GPUs", "compute": "compute", "queues": "queues"}
"""What is compared by rule; whose fault a full GPU is, a whole holder's or a share's, rows cannot tell."""
SAMPLES = 400


def random_starts(snapshot, problem, draw):
    """Some waiting jobs on any nodes they may use, any GPUs there: often one GPU, node or quota too far."""
    nodes = snapshot.cluster.node_by_name
    starts = []
    for job_class in problem.classes:
        for name in job_class.jobs:
            if draw.random() < 0.5:
                continue
            option = draw.choice(job_class.options)
            groups = [problem.groups[index] for index in option.groups]
            replicas = []
            for _ in range(
                max(1, draw.randint(job_class.minimum, job_class.maximum) + draw.choice((0, 0, 0, 0, 1, -1)))
            ):
                node = problem.nodes[draw.choice(draw.choice(groups).nodes)].name
                count = nodes[node].gpu_count
                wanted = job_class.shape.gpus or bool(job_class.shape.gpu_milli)
                gpus = draw.sample(range(count), min(count, int(wanted)))
                job = snapshot.job_by_name[name]
                replicas.append(
                    build.replica(
                        node, gpus=sorted(gpus), milli=job_class.shape.gpu_milli or 1000
                    ).model_copy(
                        update={"cpu_milli": job.request.cpu_milli, "memory_mib": job.request.memory_mib}
                    )
                )
            if all(len(replica.gpus) == int(wanted) for replica in replicas):
                starts.append(Placement(job=name, replicas=tuple(replicas)))
    return tuple(starts)


def legal_starts(snapshot, problem, draw):
    """A random but legal way to place jobs: the ledger's, in random order and at random counts."""
    ledger = Ledger(problem)
    order = list(range(len(problem.classes)))
    draw.shuffle(order)
    for index in order:
        job_class = problem.classes[index]
        left = draw.randint(0, len(job_class.jobs))
        for option in draw.sample(job_class.options, len(job_class.options)):
            left -= ledger.place(index, option, jobs=left)
    return ledger.placements()


def samples(count=SAMPLES):
    for seed in range(count):
        snapshot = (instances.mixed if seed % 2 else instances.divisible)(seed)
        yield seed, snapshot, pose(snapshot, instances.POLICY), random.Random(seed)


def rules_broken(snapshot, starts):
    found = verify(snapshot, instances.POLICY, (*snapshot.running_placements, *starts)).violations
    return {violation.rule.value for violation in found}


def families_broken(problem, starts):
    x = ReferenceColumns(problem)
    formulation = reference(problem, x)
    return {row.family for row in formulation.violated(x.encode(starts))}


def compared(names):
    return {COMPARED[name] for name in names if name in COMPARED}


def disagreements():
    """What some sample's rows and the verifier differ about; and how often each rule was broken."""
    wrong, seen = set(), Counter()
    for _, snapshot, problem, draw in samples():
        starts = random_starts(snapshot, problem, draw)
        rules, families = rules_broken(snapshot, starts), families_broken(problem, starts)
        seen.update(rules)
        wrong |= compared(rules) ^ compared(families)
    return wrong, seen


def test_plain_model_and_verifier_agree_family_by_family():
    wrong, seen = disagreements()

    assert wrong == set()
    # The samples break every rule often, and keep it often.
    assert all(SAMPLES // 40 <= seen[name] <= SAMPLES * 39 // 40 for name in COMPARED), seen


def test_block_model_accepts_every_verified_placement_and_values_it_alike():
    placed = 0
    for seed, snapshot, problem, draw in samples():
        x = Columns(problem)
        formulation = formulate(problem, x)
        starts = legal_starts(snapshot, problem, draw)
        assert rules_broken(snapshot, starts) == set(), seed
        values = x.encode(starts)
        assert formulation.violated(values) == (), seed
        assert (values <= formulation.upper).all(), seed
        verification = verify(snapshot, instances.POLICY, (*snapshot.running_placements, *starts))
        assert formulation.points(values) == verification.objective, seed
        placed += len(starts)
    assert placed > SAMPLES


@pytest.mark.parametrize("rule", COMPARED)
def test_rule_missing_from_the_verifier_is_noticed(monkeypatch, rule):
    monkeypatch.setitem(verifier.RULES, Rule(rule), lambda _: iter(()))

    wrong, _ = disagreements()

    assert wrong == {COMPARED[rule]}


@pytest.mark.parametrize("family", [family.__name__ for family in FAMILIES if family.__name__ != "gang"])
def test_row_too_tight_in_the_block_model_is_noticed(family):
    """A limit lowered by one unit cuts off some verified placement."""
    assert any(
        not dataclasses.replace(row, upper=row.upper - 1).holds(values)
        for _, snapshot, problem, draw in samples()
        for x in (Columns(problem),)
        for values in (x.encode(legal_starts(snapshot, problem, draw)),)
        for row in formulate(problem, x).rows
        if row.family == family
    )


def test_every_family_of_the_block_model_forbids_something():
    forbidding = set()
    for _, _, problem, _ in samples(60):
        x = Columns(problem)
        formulation = formulate(problem, x)
        forbidding |= {row.family for row in formulation.violated(formulation.upper)}
    assert forbidding == {family.__name__ for family in FAMILIES}
