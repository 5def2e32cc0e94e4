"""Floors under what the strategies make: properties over them mean something only while they hold."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from gpuplan.models.plan.violation import Rule
from tests.support.harness.verify_helpers import judge
from tests.support.strategies.placement_strategies import candidates, legal_placements, node_changes
from tests.support.strategies.snapshot_strategies import snapshots

pytestmark = pytest.mark.slow

EXAMPLES, RUNS = 480, 16
RULES = set(Rule) - {
    Rule.ANTI_AFFINITY,
    Rule.CAPABILITY,
    Rule.DAMAGE,
    Rule.DEADLINES,
    Rule.DEPENDENCIES,
    Rule.DISRUPTION_BUDGET,
    Rule.HORIZON,
    Rule.ORDER,
    Rule.POOLS,
    Rule.POWER,
    Rule.PREEMPTION,
    Rule.PRIORITY,
    Rule.PROMISES,
    Rule.SPREAD,
    Rule.UNDISTURBED,
    Rule.WINDOWS,
}
"""Rules that these snapshots have something of; the others are for `instances` and `random_targets`."""


def test_candidates_break_every_rule_and_most_alone_and_are_often_legal():
    broken, alone, seen = Counter(), Counter(), Counter()

    @settings(
        max_examples=EXAMPLES // RUNS,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data(), st.booleans())
    def count(data, rich):
        world = data.draw(snapshots(mig=rich, locality=rich))
        placements = data.draw(candidates(world))
        legal = {each.job for each in data.draw(legal_placements(world))}

        added, removed = data.draw(node_changes(world))
        rules = {violation.rule for violation in judge(world, *placements, added=added, removed=removed)}
        running = {each.job for each in world.running_placements}
        waiting = {each.name for each in world.jobs} - running
        broken.update(rules)
        alone.update(rules if len(rules) == 1 else ())
        seen["jobs run"] += bool(running)
        seen["legal and something starts"] += not rules and {each.job for each in placements} > running
        seen["some start and some do not"] += bool(legal & waiting) and bool(waiting - legal)
        assert running <= legal
        assert len(world.cluster.nodes) <= 4
        assert len(world.jobs) <= 8

    # Hypothesis varies what it made before: several short runs see more than a long one.
    for number in range(RUNS):
        seed(number)(count)()

    assert {rule: broken[rule] for rule in RULES if broken[rule] < 3} == {}
    assert len(alone) >= 6, alone
    assert min(seen.values()) >= EXAMPLES // 10, seen
    for rule in (Rule.GPU_CAPACITY, Rule.CPU_MEMORY, Rule.QUOTA):
        assert broken[rule] >= EXAMPLES // 20, broken
    print(broken, alone, seen)
