"""Cases that no rule was tuned for: consistent, the same from a seed, and what greedy plans for them."""

import pytest

from benchmarks.instances import Instance
from benchmarks.odd_cases import MIG, QUEUES, SHARES, OddCase, odd_snapshot
from gpuplan.models.policy.policy import Policy
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.models.verifier.verify import verify_target
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.targets.to_target import target_of

SMALL = (OddCase(SHARES, 2, 80), OddCase(MIG, 2, 50), OddCase(QUEUES, 12, 60))


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.kind)
def test_is_consistent_and_the_same_from_the_same_seed(case):
    snapshot = odd_snapshot(case, seed=1)

    assert not list(inconsistencies(snapshot))
    assert odd_snapshot(case, seed=1).fingerprint() == snapshot.fingerprint()
    assert odd_snapshot(case, seed=2).fingerprint() != snapshot.fingerprint()


@pytest.mark.slow
@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.kind)
def test_greedys_plans_break_no_rule_and_fill_what_they_may(case):
    snapshot = odd_snapshot(case, seed=1)
    target = target_of(greedy(build_problem(snapshot, Policy())), snapshot.running_placements)

    assert verify_target(snapshot, Policy(), target).violations == ()
    assert len(target.placements) > len(snapshot.running_placements)


@pytest.mark.slow
def test_the_tree_has_200_queues_on_five_levels_that_limit_and_lend():
    queues = {queue.name: queue for queue in odd_snapshot(OddCase(QUEUES, 64, 60), seed=1).queues}

    def depth(name):
        parent = queues[name].parent
        return 1 if parent is None else 1 + depth(parent)

    assert len(queues) == 200
    assert max(map(depth, queues)) == 5
    assert any(queue.quota.lending_limit is not None for queue in queues.values())
    assert any(queue.quota.guarantee for queue in queues.values())


def test_an_instance_of_one_has_the_default_policy():
    assert Instance("MIG, 25 nodes", 20).policy().objective == Policy().objective
