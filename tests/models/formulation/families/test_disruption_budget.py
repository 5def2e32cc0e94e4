from gpuplan.models.policy.policy import Disruption
from gpuplan.models.policy.settings import DisruptionBudget
from gpuplan.planner.problem_builder import build_problem
from tests.support.builders import build
from tests.support.harness.solved_model import solved


def policy(**budget):
    return build.by_value(disruption=Disruption(budgets=(DisruptionBudget(name="b", **budget),)))


def world(*, running, urgent, replicas=1):
    """A full node of as many jobs as it has GPUs, and as many waiting ones of higher priority."""
    jobs = [build.job(f"r{n}", gpus=1, at=[build.replica(gpus=(n,))]) for n in range(running)]
    waiting = [build.job(f"w{n}", gpus=1, priority=5, replicas=replicas) for n in range(urgent)]
    return build.snapshot(nodes=[build.node("n0", gpus=running)], jobs=[*jobs, *waiting])


def test_no_more_are_stopped_than_the_budget_leaves():
    answer = solved(world(running=4, urgent=3), policy(max_unavailable=2))

    assert len(answer.stopped) == 2
    assert answer.placed.total() == 2


def test_a_gang_that_needs_more_waits():
    answer = solved(world(running=4, urgent=1, replicas=3), policy(max_unavailable=2))

    assert answer.stopped == set()
    assert answer.placed.total() == 0


def test_the_replicas_of_a_stopped_gang_count_unless_jobs_do():
    places = [build.replica(gpus=(n,)) for n in range(2)]
    gang = build.job("g", gpus=1, replicas=2, at=places)
    waiting = build.job("w", gpus=2, priority=5)
    full = build.snapshot(nodes=[build.node("n0", gpus=2)], jobs=[gang, waiting])

    assert solved(full, policy(max_unavailable=1)).stopped == set()
    assert solved(full, policy(max_unavailable=1, counts="jobs")).stopped == {"g"}


def test_of_equal_jobs_on_a_node_those_leave_that_no_budget_keeps():
    kept = [build.job(f"a{n}", gpus=1, at=[build.replica(gpus=(n,))], labels={"app": "x"}) for n in range(2)]
    # They lose more, so that they would be the last to leave.
    free = [build.job(f"z{n}", gpus=1, at=[build.replica(gpus=(2 + n,))], weight=2) for n in range(2)]
    waiting = [build.job(f"w{n}", gpus=1, priority=5) for n in range(3)]
    full = build.snapshot(nodes=[build.node("n0", gpus=4)], jobs=[*kept, *free, *waiting])

    assert solved(full, policy(labels={"app": "x"}, max_unavailable=1)).stopped == {"a0", "z0", "z1"}


def test_budgets_that_cannot_bind_have_no_row():
    assert build_problem(world(running=2, urgent=2), policy(max_unavailable=2)).disruption_limits == ()


def test_jobs_that_no_plan_may_disrupt_are_no_incumbents():
    assert build_problem(world(running=2, urgent=2), policy(max_unavailable=0)).incumbents == ()
