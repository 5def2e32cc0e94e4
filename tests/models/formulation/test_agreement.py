"""
The formulation and the verifier, which share no code, agree about random targets.

Plain model: a family has a broken row exactly when the verifier reports the rule of that name, and the
objective of a target without violations is the verifier's. Block model: every target without violations
satisfies every row and is worth at least as much. Both must notice planted bugs.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from functools import cache

import numpy as np
import pytest

from gpuplan.models.formulation import FAMILIES, formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.encode import encode
from gpuplan.models.plan.violation import Rule
from gpuplan.models.policy.policy import Policy
from gpuplan.models.verifier import verify
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import cpsat
from gpuplan.solvers.interface import Budget
from tests.oracle import reference
from tests.support.builders import build
from tests.support.oracles.overcommitted import overfull
from tests.support.seeds import EVERY_SEED
from tests.support.strategies import budget_worlds, instances
from tests.support.strategies.random_targets import judged, legal_target, random_target

pytestmark = pytest.mark.slow

COMPARED = {
    "gang": "gang",
    "request": "request",
    "locality": "locality",
    "spread": "spread",
    "preemption": "preemption",
    "disruption_budget": "disruption_budget",
    "anti_affinity": "anti_affinity",
    "gpu_capacity": "GPUs",
    "fractional_gpu": "GPUs",
    "mig": "mig",
    "cpu_memory": "cpu_memory",
    "power": "power",
    "quota": "quota",
    "pools": "pools",
}
"""What is compared by rule; whether a whole holder or a share fills a GPU, rows cannot tell."""

ALONE = ("assignment", "selection")
"""Where one of these is broken, nothing else is compared: what the rest of the target means is then open."""

NOT_ROWS = {
    "damage", "capability", "eviction", "order", "horizon", "windows", "dependencies", "deadlines",
    "promises", "priority", "undisturbed",
}  # fmt: skip
"""
What is damaged is no part of a problem, and what a cluster cannot do has no columns.

Which jobs may be disturbed at all is the problem's choice, and the targets here keep to it; no sums say in
which order moves can be made. What has to do with time is compared in
`tests/models/formulation/time_indexed/test_horizon_agreement.py`, later starts beside what is stopped in
`test_undisturbed_agreement.py` there, priorities in order in `tests/solvers/test_priority_stages.py`.
"""

OF_ONE_SLOT = [family.__name__ for family in FAMILIES if family.__name__ not in ("horizon", "priority")]

OPEN_WITH = {"GPUs": {"power"}, "mig": {"power"}, "gang": {"locality", "spread"}, "request": {"gang"}}
"""
What is not compared where something else is broken: a node without a cap has no row for power however often
its GPUs are held, a job of one replica none for the domains of two, and a replica that lacks its GPU is on no
GPU model.
"""

RANDOM_TARGETS, LEGAL_TARGETS = 4, 2

SAMPLES, WITH_BUDGETS = (380, 320) if EVERY_SEED else (240, 200)
"""Number of instances, and the first of those in which disruption budgets often bind."""


@cache
def posed(number):
    """(snapshot, policy, problem) of one instance: a fourth plain, a fifth with quotas of CPU and memory."""
    if number >= WITH_BUDGETS:
        snapshot, policy = budget_worlds.world(number)
        return snapshot, policy, build_problem(snapshot, policy)
    limited = instances.cpu_limited if number % 5 == 3 else lambda make: make
    if number % 4 == 0:
        snapshot = limited(instances.mixed if number % 8 else instances.divisible)(number)
        return snapshot, instances.POLICY, build_problem(snapshot, instances.POLICY)
    instance = limited(instances.everything_mixed if number % 2 else instances.everything)(number)
    return instance.snapshot, instance.policy, build_problem(instance.snapshot, instance.policy)


RELAXED_IF_OVERFULL = {"cpu_memory", "power", "preemption", "quota"}


def rules_broken(snapshot, policy, target):
    return {violation.rule.value for violation in judged(snapshot, policy, target).violations}


def compared(names):
    for alone in ALONE:
        if alone in names:
            return {alone}
    return {COMPARED[name] for name in names if name in COMPARED}


def differences(rules, families):
    """What a verifier and a model differ about, given what each says is broken."""
    rules, families = compared(rules), compared(families)
    left_open = {name for broken in rules | families for name in OPEN_WITH.get(broken, ())}
    return (rules ^ families) - left_open


@cache
def random_targets():
    """(snapshot, policy, target, plain model, values there) of targets that are often illegal."""
    found = []
    for number in range(SAMPLES):
        snapshot, policy, problem = posed(number)
        draw = random.Random(number)
        x = reference.ReferenceColumns(problem)
        formulation = reference.reference(problem, x)
        for _ in range(RANDOM_TARGETS):
            target = random_target(snapshot, problem, draw)
            found.append((snapshot, policy, target, formulation, x.encode(target), overfull(problem)))
    return found


def compared_targets(*, without=frozenset()):
    """By target: what its rows and the verifier differ about, and the rules that it breaks."""
    for snapshot, policy, target, formulation, values, relaxed in random_targets():
        rules = rules_broken(snapshot, policy, target)
        told = differences(rules, {row.family for row in formulation.violated_rows(values)} - without)
        yield told - RELAXED_IF_OVERFULL if relaxed else told, rules


def is_noticed(names, **about):
    """True if targets differ about all of these; the rest is not looked at then."""
    wrong = set()
    return any(names <= (wrong := wrong | told) for told, _ in compared_targets(**about))


def test_plain_model_and_verifier_agree_family_by_family():
    wrong, seen = set(), Counter()
    for told, rules in compared_targets():
        wrong |= told
        seen.update(rules)

    assert wrong == set()
    # The targets break every rule often, and keep it often.
    most = len(random_targets())
    rarely = {rule: seen[rule] for rule in (*COMPARED, *ALONE) if not 8 <= seen[rule] <= most * 9 // 10}
    assert rarely == {}, seen
    assert {rule.value for rule in Rule} == {*COMPARED, *ALONE, *NOT_ROWS}


def test_quotas_of_cpu_cores_and_memory_are_broken_and_kept():
    told = Counter()
    for snapshot, policy, target, *_ in random_targets():
        limited = any(queue.cpus or queue.memory for queue in snapshot.queues)
        found = {
            unit
            for violation in judged(snapshot, policy, target).violations
            for unit in ("CPU core", "MiB of memory")
            if violation.rule is Rule.QUOTA and unit in violation.found
        }
        told.update(found or (["kept"] if limited and len(target.placements) > 1 else []))

    assert min(told["CPU core"], told["MiB of memory"], told["kept"]) >= (20 if EVERY_SEED else 5), told


def test_bounds_of_columns_are_wide_enough_for_every_target():
    assert all((values <= formulation.upper).all() for *_, formulation, values, _ in random_targets())


@cache
def legal_targets():
    """(number, problem, target, the verifier's answer), several of each instance."""
    found = []
    for number in range(SAMPLES):
        snapshot, policy, problem = posed(number)
        draw = random.Random(number)
        for _ in range(LEGAL_TARGETS):
            target = legal_target(snapshot, policy, problem, draw)
            found.append((number, problem, target, judged(snapshot, policy, target)))
    return found


@cache
def block_models():
    """(number, formulation, values at a target, the verifier's answer) of every legal target."""
    found = []
    for number, problem, target, verification in legal_targets():
        x = Columns(problem)
        found.append((number, formulate(problem, x), encode(x, target), verification))
    return found


TERMS = {
    "completion",
    "data",
    "drain",
    "fragmentation",
    "guarantee",
    "interference",
    "locality",
    "migration",
    "nodes",
    "nominal",
    "preemption",
    "preference",
    "repartition",
    "resize",
}


def test_plain_model_values_legal_targets_as_the_verifier_does():
    seen = Counter()
    for number, problem, target, verification in legal_targets():
        x = reference.ReferenceColumns(problem)
        formulation = reference.reference(problem, x)
        values = x.encode(target)

        assert verification.violations == (), number
        assert formulation.violated_rows(values) == (), number
        assert formulation.points(values) == verification.objective, (number, verification.terms)
        seen.update(name for name, points in verification.terms.items() if points)
    assert {name for name in TERMS if seen[name] < 3} == set(), seen


def test_block_model_accepts_every_legal_target_and_values_it_no_lower():
    equal = 0
    for number, formulation, values, verification in block_models():
        assert formulation.violated_rows(values) == (), number
        assert (values <= formulation.upper).all(), number
        assert formulation.points(values) >= verification.objective, (number, verification.terms)
        equal += formulation.points(values) == verification.objective
    # Interference is left out of it, and the cheapest of equal jobs stands for any of them.
    assert equal >= len(block_models()) * 9 // 10


@pytest.mark.parametrize("rule", sorted({*COMPARED, *ALONE}))
def test_rule_missing_from_the_verifier_is_noticed(monkeypatch, rule):
    monkeypatch.setitem(verify.RULES, Rule(rule), lambda _: iter(()))

    assert is_noticed({COMPARED.get(rule, rule)})


ROWS_OF = {"gpus": {"gpu_capacity", "fractional_gpu"}}
"""Families of rows of the functions that make several."""


@pytest.mark.parametrize(
    "family", [family.__name__ for family in reference.FAMILIES if family.__name__ not in NOT_ROWS]
)
def test_family_missing_from_the_plain_model_is_noticed(family):
    families = ROWS_OF.get(family, {family})

    assert is_noticed({COMPARED.get(name, name) for name in families}, without=families)


@pytest.mark.parametrize("family", OF_ONE_SLOT)
def test_row_too_tight_in_the_block_model_is_noticed(family):
    """A limit moved by one unit cuts off some legal target."""

    def tighter(row):
        if row.upper is not None:
            return dataclasses.replace(row, upper=row.upper - 1)
        return dataclasses.replace(row, lower=row.lower + 1)

    assert any(
        not tighter(row).holds(values)
        for _, formulation, values, _ in block_models()
        for row in formulation.rows
        if row.family == family
    )


def stranded():
    """Two nodes of 96 cores: beside each of two heavy jobs there is one core too few for a light one."""
    heavy = [build.job(f"h{index}", gpus=4, cpus=73) for index in range(2)]
    jobs = [*heavy, *(build.job(f"l{index}", gpus=2, cpus=24) for index in range(2))]
    problem = build_problem(build.snapshot(nodes=build.cluster(2, cpus=96), jobs=jobs), Policy())
    return formulate(problem, Columns(problem))


def growing():
    """An instance with a better optimum without the rows of pools: of 320 the only one."""
    instance = instances.everything(274)
    problem = build_problem(instance.snapshot, instance.policy)
    return formulate(problem, Columns(problem))


@pytest.mark.parametrize("family", OF_ONE_SLOT)
def test_family_missing_from_the_block_model_is_noticed(family):
    """Without it some instance has a better optimum."""

    def optimum(formulation):
        hint = np.zeros_like(formulation.upper)
        answer = cpsat.solve(formulation, Budget(time.monotonic() + 20), hint, lambda _: None)
        return answer.bound

    def without(formulation):
        rows = tuple(row for row in formulation.rows if row.family != family)
        return dataclasses.replace(formulation, rows=rows)

    models = [stranded(), growing(), *(formulation for _, formulation, *_ in block_models()[::LEGAL_TARGETS])]
    concerned = (each for each in models if any(row.family == family for row in each.rows))
    assert any(optimum(without(each)) > optimum(each) for each in concerned)
