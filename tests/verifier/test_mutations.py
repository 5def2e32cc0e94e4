"""
Would the tests of the rules notice? Bugs planted in the verifier, one at a time, must each fail one of them.

Each bug replaces one piece of a source file. The examples of the test file named must pass before and at
least one of them must fail after. Examples take no arguments, so that they can be called here.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from planner.models import (
    verifier,
    verifier_capacity_rules,
    verifier_case,
    verifier_job_rules,
    verifier_words,
)
from planner.models.violation import Rule

JOB, CAPACITY, CASE = verifier_job_rules, verifier_capacity_rules, verifier_case
MODULES = (verifier, JOB, CAPACITY, CASE, verifier_words)

# ruff: noqa: E501 - one bug a line
PLANTED = (
    ("assignment", JOB, "if times > 1:", "if times > 2:"),
    ("assignment", JOB, "if name not in case.jobs:", "if False:"),
    ("assignment", JOB, "if job.held:", "if False:"),
    ("assignment", JOB, "if placement.slot:", "if placement.slot > 1:"),
    ("assignment", CASE, "if job and job.running is None", "if job"),
    ("eviction", JOB, "if job.running is None or job.name in case.kept:", "if job.running is None or job.name in placed:"),
    ("eviction", CASE, "return one == other or Counter", "return len(one) == len(other) or Counter"),
    ("eviction", CASE, "return one == other or Counter(map(holding, one)) == Counter(map(holding, other))", "return one == other"),
    ("eviction", CASE, "Counter(map(holding, one)) == Counter(map(holding, other))", "set(map(holding, one)) <= set(map(holding, other))"),
    ("eviction", CASE, '(held.index, held.milli, "", 0)', '(held.milli, "", 0)'),
    ("eviction", CASE, '(held.index, held.milli, "", 0)', '(held.index, "", 0)'),
    ("eviction", CASE, "        replica.node,\n", ""),
    ("eviction", CASE, "if amount))", "))"),
    ("gang", JOB, "if not least <= count <= most:", "if not least < count <= most:"),
    ("gang", JOB, "if not least <= count <= most:", "if count > most:"),
    ("gang", JOB, "if not least <= count <= most:", "if count < least:"),
    ("gang", JOB, "if not least <= count <= most:", "if count != most:"),
    ("gang", JOB, "if len(models) > 1:", "if len(models) > 2:"),
    ("gang", CASE, "for replica in placement.replicas if replica.gpus)", "for replica in placement.replicas)"),
    ("request", JOB, "if held_gpus != wanted_gpus else []", "if len(held_gpus) != len(wanted_gpus) else []"),
    ("request", JOB, "if held_gpus != wanted_gpus else []", "if len(held_gpus) < len(wanted_gpus) else []"),
    ("request", JOB, "if indices.count(index) > 1", "if indices.count(index) > 2"),
    ("request", JOB, "if held.get(unit, 0) != wanted.get(unit, 0)", "if held.get(unit, 0) > wanted.get(unit, 0)"),
    ("request", JOB, "if held.get(unit, 0) != wanted.get(unit, 0)", "if held.get(unit, 0) < wanted.get(unit, 0)"),
    ("request", JOB, "for unit in held.keys() | wanted.keys()", "for unit in wanted"),
    ("request", JOB, "for _ in range(count)", "for _ in range(1)"),
    ("selection", JOB, "if not node.ready:", "if False:"),
    ("selection", JOB, "if node.cordoned:", "if False:"),
    ("selection", JOB, "for key, value in job.node_selector.items():", "for key, value in list(job.node_selector.items())[:1]:"),
    ("selection", JOB, "elif node.labels[key] != value:", "elif False:"),
    ("selection", JOB, "for taint in node.taints:", "for taint in node.taints[:1]:"),
    ("selection", JOB, "or held.index >= gpus.count:", "or held.index > gpus.count:"),
    ("selection", JOB, "if not gpus.by_index[held.index].healthy:", "if False:"),
    ("selection", JOB, "if job.gpu_models and", "if"),
    ("selection", JOB, "< (needed :=", "<= (needed :="),
    ("selection", JOB, "return gpus.memory_mib * held.milli // MILLI", "return gpus.memory_mib"),
    ("selection", JOB, "return gpus.memory_mib * held.milli // MILLI", "return -(-gpus.memory_mib * held.milli // MILLI)"),
    ("selection", JOB, "[held.profile].memory_slices //", "[held.profile].compute_slices //"),
    ("locality", JOB, "if level is None or len(names) <= 1:", "if level is None:"),
    ("locality", JOB, "if level is None or len(names) <= 1:", "if level is None or len(names) <= 2:"),
    ("locality", JOB, "level = job.locality.required", "level = job.locality.required or job.locality.preferred"),
    ("locality", JOB, "if None in domains:", "if False:"),
    ("locality", JOB, "elif len(domains) > 1:", "elif len(domains) > 2:"),
    ("staircase", CAPACITY, "if any(milli == MILLI for _, milli in shares):", "if all(milli == MILLI for _, milli in shares):"),
    ("staircase", CASE, "setdefault((replica.node, held.index), [])", "setdefault((replica.node, 0), [])"),
    ("staircase", CASE, "setdefault((replica.node, held.index), [])", "setdefault((self.placements[0].replicas[0].node, held.index), [])"),
    ("staircase", CASE, "if not all(holder.kept for holder in using)", "if True"),
    ("staircase", CASE, "if not all(holder.kept for holder in using)", "if not any(holder.kept for holder in using)"),
    ("sharing", CAPACITY, "for _, milli in shares) > MILLI:", "for _, milli in shares) >= MILLI:"),
    ("sharing", CAPACITY, "for _, milli in shares) > MILLI:", "for _, milli in shares) > MILLI + 1:"),
    ("mig", CAPACITY, "elif present is not None:", "elif False:"),
    ("mig", CAPACITY, "elif present is not None:", "elif present:"),
    ("mig", CAPACITY, "elif present is not None:", "else:"),
    ("mig", CAPACITY, "elif instance not in present:", "elif instance.profile not in {one.profile for one in present}:"),
    ("mig", CAPACITY, "if len(users[instance]) > 1:", "if False:"),
    ("mig", CAPACITY, "            if not holder.kept:\n                new.add(instance)", "            new.add(instance)"),
    ("mig", CAPACITY, "geometry.faults(users)", "geometry.faults(new)"),
    ("mig", CAPACITY, "geometry.faults(users)", "()"),
    ("compute", CAPACITY, "if amount > allowed:", "if amount >= allowed:"),
    ("compute", CAPACITY, "if amount > allowed:", "if amount > allowed + 1:"),
    ("compute", CAPACITY, "before[name][unit] if name in before else 0)", "0)"),
    ("compute", CAPACITY, "allowed = max(offered.get(unit, 0), ", "allowed = (offered.get(unit, 0) + "),
    ("compute", CAPACITY, "held.setdefault(replica.node, ", "held.setdefault(placement.replicas[0].node, "),
    ("compute", CAPACITY, "        for replica in placement.replicas:\n            on_node", "        for replica in placement.replicas[:1]:\n            on_node"),
    ("queues", CAPACITY, "if used[queue.name] > allowed:", "if used[queue.name] >= allowed:"),
    ("queues", CAPACITY, "if used[queue.name] > allowed:", "if used[queue.name] > allowed + 1:"),
    ("queues", CAPACITY, "allowed = max(limit[queue.name], used_before[queue.name])", "allowed = limit[queue.name]"),
    ("queues", CAPACITY, "for resource in (ALL_MODELS, *models):", "for resource in (ALL_MODELS,):"),
    ("queues", CAPACITY, "for resource in (ALL_MODELS, *models):", "for resource in models:"),
    ("queues", CAPACITY, "lending = inf if quota.lending_limit is None else quota.lending_limit", "lending = inf"),
    ("queues", CAPACITY, "borrowing = inf if quota.borrowing_limit is None else quota.borrowing_limit", "borrowing = inf"),
    ("queues", CAPACITY, "subtree if queue.parent is None else subtree + borrowing", "subtree + borrowing"),
    ("queues", CAPACITY, "kept[queue.name] = max(0, subtree - lending)", "kept[queue.name] = 0"),
    ("queues", CAPACITY, "kept[queue.name] = max(0, subtree - lending)", "kept[queue.name] = subtree"),
    ("queues", CAPACITY, "lent[queue.parent].append(min(subtree, lending))", "lent[queue.parent].append(subtree)"),
    ("queues", CAPACITY, "subtree = quota.nominal + sum(part for part in from_children if part < inf)", "subtree = quota.nominal"),
    ("queues", CAPACITY, "sum(part for part in from_children if part < inf)", "sum(from_children)"),
    ("queues", CAPACITY, "subtree = sum(from_children) if from_children else inf", "subtree = sum(from_children)"),
    ("queues", CAPACITY, "subtree = sum(from_children) if from_children else inf", "subtree = inf"),
    ("queues", CAPACITY, "if resource in (ALL_MODELS, model):", "if True:"),
    ("queues", CAPACITY, "return profile_milli(held.profile)", "return MILLI"),
    ("objective", verifier, "if job.held or placement.slot or times[job.name] > 1:", "if placement.slot or times[job.name] > 1:"),
    ("objective", verifier, "if job.held or placement.slot or times[job.name] > 1:", "if job.held or times[job.name] > 1:"),
    ("objective", verifier, "if job.held or placement.slot or times[job.name] > 1:", "if job.held or placement.slot:"),
    ("objective", verifier, "len(placement.replicas))", "job.gang.maximum)"),
    ("objective", verifier, "if job.request.needs_gpu:", "if False:"),
    ("objective", verifier, "for job, placement in case.started:", "for job, placement in ((case.jobs[each.job], each) for each in case.placements if each.job in case.jobs):"),
)  # fmt: skip


def examples(name):
    """The tests of one file, as functions."""
    path = Path(__file__).with_name(f"test_{name}.py")
    spec = importlib.util.spec_from_file_location(f"examples_of_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [value for key, value in vars(module).items() if key.startswith("test_")]


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
        for rule, judge in verifier.RULES.items():
            if judge is vars(module)[name]:
                monkeypatch.setitem(verifier.RULES, rule, value)
        for user in MODULES:
            if vars(user).get(name) is vars(module)[name]:
                monkeypatch.setattr(user, name, value)


@pytest.mark.parametrize("name", sorted({name for name, *_ in PLANTED}))
def test_examples_pass_without_a_bug(name):
    assert examples(name)
    assert not some_example_fails(name)


@pytest.mark.parametrize("rule", Rule)
def test_a_rule_that_finds_nothing_is_noticed(monkeypatch, rule):
    monkeypatch.setitem(verifier.RULES, rule, lambda _: iter(()))

    assert some_example_fails(rule)


@pytest.mark.parametrize(("name", "module", "old", "new"), PLANTED)
def test_a_planted_bug_is_noticed(monkeypatch, name, module, old, new):
    plant(monkeypatch, module, old, new)

    assert some_example_fails(name)


def test_every_rule_is_judged():
    assert set(verifier.RULES) == set(Rule)
