"""The ledger takes back whatever it did, and lets no job leave or come against a rule."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest

from gpuplan.models.policy.policy import Disruption, Policy
from gpuplan.models.problem.jobs import ClassRole
from gpuplan.models.verifier.verify import verify
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import placement, vacate
from gpuplan.solvers.heuristics.greedy import greedy
from gpuplan.solvers.heuristics.greedy_fill import fill_free_capacity
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.constraints.mig_state import is_legal
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.from_target import place_on_sites
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.harness.greedy_plans import realized
from tests.support.seeds import EVERY_SEED, examples
from tests.support.strategies import instances

OF_A_KIND = 400 if EVERY_SEED else 80
"""Instances."""

KINDS = pytest.mark.parametrize(
    "kind",
    [instances.everything, instances.everything_mixed, instances.cpu_limited(instances.everything_mixed)],
    ids=["divisible", "mixed", "quotas of CPU and memory"],
)


def state(ledger):
    """All that a ledger knows, in a form that compares."""
    capacity = ledger.capacity
    return (
        ledger.objective,
        dict(sorted(ledger.placed.items())),
        capacity.gpu_free.tolist(),
        capacity.free.tolist(),
        capacity.gpu_left.tolist(),
        capacity.whole.tolist(),
        capacity.usable.tolist(),
        [dict(sorted(layouts.items())) for layouts in capacity.mig._layouts],
        ledger.preemption_ranks.least.tolist(),
        ledger.capacity.replicas.tolist(),
        ledger.queues.quota._usage,
        ledger.queues.quota._missing,
        [
            counts.tolist()
            for tags in (ledger.affinity._all, ledger.affinity._newcomers)
            for counts in (*tags.carriers, *tags.avoiders)
        ],
        {name: counts.tolist() for name, counts in ledger.affinity._present.items()},
        ledger.pools.opened,
        ledger.pools.closed,
        [ledger.disruptions[index] for index in range(len(ledger.problem.incumbents))],
    )


def disturb(ledger, draw, steps=12):
    """Any sequence of things that a ledger can do."""
    problem = ledger.problem
    for _ in range(steps):
        match draw.randrange(8):
            case 0 | 1 if problem.classes:
                index = draw.randrange(len(problem.classes))
                placement.place(
                    ledger, index, draw.choice(problem.classes[index].options), jobs=draw.randint(1, 3)
                )
            case 2 if problem.incumbents:
                vacate.stop_incumbent(ledger, draw.randrange(len(problem.incumbents)))
            case 3 if problem.incumbents:
                index = draw.randrange(len(problem.incumbents))
                if vacate.vacate_for_move(ledger, index):
                    move = problem.incumbents[index].move
                    options = problem.classes[move].options
                    if not any(placement.place(ledger, move, option, jobs=1) for option in options):
                        vacate.restore_incumbent(ledger, index)
            case 4 if problem.incumbents:
                index = draw.randrange(len(problem.incumbents))
                holds = range(len(problem.incumbents[index].holds))
                vacate.shrink_incumbent(ledger, index, draw.sample(holds, draw.randint(1, len(holds))))
            case 5 if problem.incumbents:
                vacate.restore_incumbent(ledger, draw.randrange(len(problem.incumbents)))
            case 6 if problem.pools:
                ledger.pools.open(draw.randrange(len(problem.pools)))
                for node in problem.pools[0].closable:
                    ledger.pools.close(node)
            case 7 if ledger.placed:
                ledger.remove(draw.choice(sorted(ledger.placed)))


@pytest.mark.slow
@KINDS
def test_rollback_restores_everything(kind):
    for seed in range(examples(120)):
        instance, draw = kind(seed), random.Random(seed)
        ledger = Ledger(build_problem(instance.snapshot, instance.policy))
        disturb(ledger, draw)
        before, mark = state(ledger), ledger.undo.mark()
        disturb(ledger, draw)
        ledger.undo.rollback(mark)
        assert state(ledger) == before, seed


def homeless(ledger):
    """Incumbents that left to be moved and have no new places."""
    incumbents = ledger.problem.incumbents
    return [
        index for index in ledger.disruptions.having("move") if not ledger.is_placed(incumbents[index].move)
    ]


@pytest.mark.slow
def test_whatever_a_ledger_does_is_legal():
    """All but the order of moves, which is another's business."""
    done = Counter()
    for kind, seed in itertools.product((instances.everything, instances.everything_mixed), range(OF_A_KIND)):
        instance = kind(seed)
        problem = build_problem(instance.snapshot, instance.policy)
        ledger = Ledger(problem)
        disturb(ledger, random.Random(seed), steps=20)
        for index in homeless(ledger):
            vacate.restore_incumbent(ledger, index)
        if homeless(ledger):
            continue
        target = target_of(ledger, instance.snapshot.running_placements)
        nodes = {"added": target.added, "removed": target.removed}
        verification = verify(instance.snapshot, instance.policy, target.placements, **nodes)
        assert [each for each in verification.violations if each.rule != "order"] == [], seed
        disruptions = [ledger.disruptions[index] for index in range(len(problem.incumbents))]
        done += Counter(problem.classes[placed.job_class].role for placed in ledger.placed.values())
        done += Counter(disruption.kind for disruption in disruptions if disruption)
        done += Counter(opened=len(ledger.pools.opened), closed=len(ledger.pools.closed))
    roles = set(ClassRole) - {ClassRole.RESUME}  # there is no later slot
    assert (
        min(done[what] for what in (*roles, "stop", "shrink", "move", "opened", "closed")) > OF_A_KIND // 100
    ), done


@pytest.mark.slow
@KINDS
def test_greedys_plan_is_legal_and_worth_what_the_ledger_says(kind):
    done = Counter()
    for seed in range(OF_A_KIND):
        instance = kind(seed)
        ledger = greedy(build_problem(instance.snapshot, instance.policy))
        realized(instance.snapshot, instance.policy, ledger)
        assert 0 <= ledger.objective <= ledger.problem.ceiling, seed
        done["placed"] += len(ledger.placed)
        done["stopped"] += len(ledger.disruptions.having("stop"))
    assert min(done["placed"], done["stopped"]) >= (10 if EVERY_SEED else 7)


def elastic_on_two_nodes():
    """An elastic job with two replicas on each of two nodes of two GPUs."""
    at = [build.replica(f"n{index // 2}", gpus=[index % 2]) for index in range(4)]
    jobs = [
        build.job("r", gpus=1, replicas=(2, 4), at=at, priority=1),
        build.job("high", gpus=2, priority=9),
        build.job("low", gpus=1, priority=1),
    ]
    snapshot = build.snapshot(nodes=build.cluster(2, gpus=2), jobs=jobs)
    return snapshot, build_problem(snapshot, build.by_value())


def start(ledger, name):
    problem = ledger.problem
    index = next(
        i for i, each in enumerate(problem.classes) if name in each.jobs and each.role is ClassRole.START
    )
    return sum(placement.place(ledger, index, option, jobs=1) for option in problem.classes[index].options)


def test_shrunk_job_gets_its_replicas_back_one_by_one():
    snapshot, problem = elastic_on_two_nodes()
    ledger = Ledger(problem)

    assert vacate.shrink_incumbent(ledger, 0, [0, 1])
    assert not vacate.shrink_incumbent(ledger, 0, [2])
    # A resize: 10, and 66 minutes of four GPUs, for checkpoint, restart and an hour of unsaved work.
    assert ledger.objective == -2 * 200 - (10 + 440)
    assert vacate.restore_incumbent(ledger, 0, [0])
    assert ledger.objective == -200 - (10 + 440)
    assert vacate.restore_incumbent(ledger, 0)
    assert ledger.objective == 0
    assert realized(snapshot, build.by_value(), ledger).terms == {"completion": 0}


def test_stopped_job_may_come_back_smaller():
    snapshot, problem = elastic_on_two_nodes()
    ledger = Ledger(problem)
    vacate.stop_incumbent(ledger, 0)
    start(ledger, "high")

    assert not vacate.restore_incumbent(ledger, 0)
    assert not vacate.restore_incumbent(ledger, 0, [2])
    assert vacate.restore_incumbent(ledger, 0, vacate.restorable_replicas(ledger, 0))
    assert len(realized(snapshot, build.by_value(), ledger).places["r"].replicas) == 2


def test_a_job_put_back_displaces_the_jobs_on_its_gpus_and_no_other():
    """The single beside it is worth less, but not in its way."""
    jobs = [
        build.job("r", gpus=4, at=[build.replica(gpus=range(4))]),
        build.job("high", gpus=4, priority=9),
        build.job("low", gpus=1, priority=1),
    ]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=jobs)
    ledger = Ledger(build_problem(snapshot, build.by_value()))
    names = [job_class.jobs[0] for job_class in ledger.problem.classes]
    vacate.stop_incumbent(ledger, 0)
    assert place_on_sites(ledger, names.index("high"), [ReplicaSite(0, tuple(range(4)))])
    assert place_on_sites(ledger, names.index("low"), [ReplicaSite(0, (4,))])

    assert not vacate.restore_by_eviction(ledger, 0, most=100)
    assert vacate.restore_by_eviction(ledger, 0)
    # The ledger is not in order of priority here.
    assert set(realized(snapshot, build.by_value(priority=build.BY_WEIGHT), ledger).places) == {"r", "low"}


def test_no_lower_rank_follows_and_no_higher_rank_leaves_after_one_has_come():
    _, problem = elastic_on_two_nodes()

    preempted = Ledger(problem)
    vacate.shrink_incumbent(preempted, 0, [0, 1])
    assert start(preempted, "low") == 0
    assert start(preempted, "high") == 1

    visited = Ledger(problem)
    vacate.vacate_for_move(visited, 0)
    assert vacate.restore_incumbent(visited, 0) is False  # it may not be moved: nothing has happened
    assert visited.disruptions[0] is None


def beside_a_victim():
    """One GPU of eight is held by a job of priority 1; one of 7 GPUs outranks it, one of 8 does not."""
    jobs = [
        build.job("r", gpus=1, at=[build.replica(gpus=[0])], priority=1),
        build.job("high", gpus=1, priority=9),
        build.job("low", gpus=7, priority=1),
        build.job("all", gpus=8, priority=1, weight=50),
    ]
    snapshot = build.snapshot(nodes=build.cluster(1), jobs=jobs)
    return snapshot, Ledger(build_problem(snapshot, build.by_value()))


def test_what_was_free_beside_a_victim_is_for_any_rank_before_and_after():
    for first in ("low", "high"):
        snapshot, ledger = beside_a_victim()
        if first == "low":
            assert start(ledger, "low") == 1
        assert vacate.stop_incumbent(ledger, 0)
        assert start(ledger, "all") == 0
        # It takes the GPU that was freed, and leaves to the other what was free before.
        assert start(ledger, "high") == 1
        assert start(ledger, "low") == (first == "high")

        assert realized(snapshot, build.by_value(), ledger).held("high") == [0]


def test_what_moves_away_beside_a_victim_is_for_no_rank_that_does_not_outrank_it():
    jobs = [
        build.job("r", gpus=1, at=[build.replica(gpus=[0], cpus=4)], cpus=4, priority=1),
        build.job("m", gpus=1, at=[build.replica(gpus=[1], cpus=90)], cpus=90, priority=9),
        build.job("low", gpus=1, cpus=90, priority=0),
        build.job("high", gpus=8, priority=9),
    ]
    snapshot = build.snapshot(jobs=jobs)
    policy = Policy(disruption=Disruption(migrate=True))
    ledger = Ledger(build_problem(snapshot, policy))
    at = {incumbent.job: index for index, incumbent in enumerate(ledger.problem.incumbents)}
    n0 = np.array([0])

    assert vacate.stop_incumbent(ledger, at["r"])
    assert vacate.vacate_for_move(ledger, at["m"])
    low = next(index for index, each in enumerate(ledger.problem.classes) if each.jobs == ("low",))

    assert placement.place(ledger, low, ledger.problem.classes[low].options[0], jobs=1, nodes=n0) == 0


def test_grown_job_may_not_leave():
    jobs = [
        build.job("r", gpus=1, replicas=(1, 4), at=[build.replica(gpus=[0])]),
        build.job(gpus=8, priority=9),
    ]
    problem = build_problem(build.snapshot(nodes=build.cluster(1), jobs=jobs), build.by_value())
    ledger = Ledger(problem)
    grow = problem.incumbents[0].grow
    placement.place(ledger, grow, problem.classes[grow].options[0], jobs=1)

    assert not vacate.stop_incumbent(ledger, 0)
    assert not vacate.vacate_for_move(ledger, 0)


def test_shrunk_job_does_not_grow():
    at = [build.replica(gpus=[0]), build.replica(gpus=[1])]
    jobs = [build.job("r", gpus=1, replicas=(1, 4), at=at), build.job(gpus=8, priority=9)]
    problem = build_problem(build.snapshot(nodes=build.cluster(1), jobs=jobs), build.by_value())
    ledger = Ledger(problem)
    vacate.shrink_incumbent(ledger, 0, [1])
    fill_free_capacity(ledger)

    assert [problem.classes[placed.job_class].role for placed in ledger.placed.values()] == []


def test_opened_nodes_in_use_bear_the_first_names():
    template = build.node("p", gpus=1)
    snapshot = build.snapshot(nodes=[], jobs=[build.job(name, gpus=1) for name in "ab"])
    update = {"pools": (build.pool("p", template=template),)}
    snapshot = snapshot.model_copy(update={"cluster": snapshot.cluster.model_copy(update=update)})
    ledger = Ledger(build_problem(snapshot, build.by_value()))
    first, second = ledger.pools.open(0), ledger.pools.open(0)
    start(ledger, "a")
    ledger.pools.cancel_open(second if ledger.capacity.replicas[first] == 0 else first)
    ledger.pools.cancel_open(first) if ledger.capacity.replicas[first] == 0 else None

    assert [node.name for node in target_of(ledger, ()).added] == ["p-1"]


@pytest.mark.slow
def test_layouts_stay_legal_while_instances_come_and_go():
    for seed in range(60):
        instance = instances.everything(seed, features=("mig",), share=1.0)
        ledger = Ledger(build_problem(instance.snapshot, instance.policy))
        disturb(ledger, random.Random(seed), steps=15)
        layouts = [layout for node in ledger.capacity.mig._layouts for layout in node.values()]
        assert all(is_legal(layout) for layout in layouts)
