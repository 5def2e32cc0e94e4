"""
Would the tests of the rules notice? Bugs planted in the verifier, one at a time, must each fail one of them.

Each bug replaces one piece of a source file. The examples of the test file named must pass before and at
least one of them must fail after. Examples take no arguments, so that they can be called here.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pytest
from hypothesis import is_hypothesis_test

from gpuplan.models import verifier
from gpuplan.models.plan.violation import Rule
from gpuplan.models.verifier import later_slots, verify
from tests.support.doubles import broken_objective, broken_rules
from tests.support.seeds import EVERY_SEED

pytestmark = pytest.mark.slow

MODULES = tuple(
    import_module(found.name) for found in walk_packages(verifier.__path__, f"{verifier.__name__}.")
)

PLANTED = (*broken_rules.PLANTED, *broken_objective.PLANTED)

EXAMPLES_OF_RULE = {Rule.EVICTION: "disruption", Rule.ORDER: "migration_order"}
"""Where the file of examples is not named after the rule."""

EXAMPLES_OF_TERM = {
    "completion": "objective",
    "deadlines": "objective_time",
    "tariffs": "objective_time",
    "preemption": "objective_disruption",
    "migration": "objective_disruption",
    "resize": "objective_disruption",
    "repartition": "objective_places",
    "locality": "objective_places",
    "guarantee": "objective_owed",
    "nominal": "objective_owed",
    "fragmentation": "objective_places",
    "nodes": "objective_places",
    "data": "objective_places",
    "preference": "objective_places",
    "interference": "objective_places",
    "drain": "objective_disruption",
}


@cache
def compiled(name):
    """The code of a file of tests; it is run anew for each bug, as it imports what a bug replaces."""
    (path,) = Path(__file__).parent.rglob(f"test_{name}.py")
    return compile(path.read_text(encoding="utf-8"), path, "exec")


def examples(name):
    """The tests of one file, as functions; properties come last, as most bugs fail a short example too."""
    module = ModuleType(f"examples_of_{name}")
    module.__file__ = str(compiled(name).co_filename)
    exec(compiled(name), vars(module))
    found = [value for key, value in vars(module).items() if key.startswith("test_")]
    return sorted(found, key=is_hypothesis_test)


def some_example_fails(name):
    for example in examples(name):
        try:
            example()
        except Exception:  # noqa: BLE001 - a crash is a failure too
            return True
    return False


def plant(monkeypatch, module, old, new):
    """Replace everything the module defines by what its source with the bug defines."""
    source = Path(module.__file__).read_text()
    assert source.count(old) == 1, f"expected one {old!r} in {module.__name__}, found {source.count(old)}"
    bugged = ModuleType(module.__name__)
    exec(compile(source.replace(old, new), module.__file__, "exec"), vars(bugged))
    for name, value in vars(bugged).items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        original = vars(module)[name]
        for table in (verify.RULES, verify.TERMS, later_slots.INSTANT_RULES):
            for key, function in table.items():
                if function is original:
                    monkeypatch.setitem(table, key, value)
        for user in MODULES:
            if vars(user).get(name) is original:
                monkeypatch.setattr(user, name, value)


@pytest.mark.parametrize("name", sorted({name for name, *_ in PLANTED}))
def test_examples_pass_without_a_bug(name):
    assert examples(name)
    assert not some_example_fails(name)


@pytest.mark.parametrize("rule", Rule)
def test_a_rule_that_finds_nothing_is_noticed(monkeypatch, rule):
    monkeypatch.setitem(verify.RULES, rule, lambda _: iter(()))

    assert some_example_fails(EXAMPLES_OF_RULE.get(rule, rule))


@pytest.mark.parametrize("term", verify.TERMS)
def test_a_term_that_is_always_zero_is_noticed(monkeypatch, term):
    monkeypatch.setitem(verify.TERMS, term, lambda _: 0)

    assert some_example_fails(EXAMPLES_OF_TERM[term])


@pytest.mark.parametrize(("name", "module", "old", "new"), PLANTED[:: 1 if EVERY_SEED else 2])
def test_a_planted_bug_is_noticed(monkeypatch, name, module, old, new):
    plant(monkeypatch, module, old, new)

    assert some_example_fails(name)


def test_every_rule_is_judged():
    assert set(verify.RULES) == set(Rule)
