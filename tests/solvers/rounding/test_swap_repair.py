"""Jobs change places so that another fits; no job is worse off, and no rule is broken."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gpuplan.models.affinity import AntiAffinity
from gpuplan.models.formulation import formulate
from gpuplan.models.formulation.columns import Columns
from gpuplan.models.formulation.decode import decode
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.exact import milp
from gpuplan.solvers.interface import Budget
from gpuplan.solvers.params.placement import PlacementParams, RoundingParams
from gpuplan.solvers.rounding import disaggregate as placing
from gpuplan.solvers.rounding.swap_repair import SwapRepair, movable_classes
from gpuplan.solvers.state.assignment import ReplicaSite
from gpuplan.solvers.state.ledger import Ledger
from gpuplan.solvers.targets.from_target import place_on_sites
from gpuplan.solvers.targets.to_target import target_of
from tests.support.builders import build
from tests.support.strategies.random_targets import judged


class World:
    """Nodes of six GPUs and 24 cores, and jobs placed on them by hand."""

    def __init__(self, *jobs, placed, running=(), nodes=None, params=PlacementParams()):
        """`placed` has (node, first GPU) by job."""
        self.snapshot = build.snapshot(
            nodes=nodes or build.cluster(2, gpus=6, cpus=24), jobs=[*running, *jobs]
        )
        self.policy = Policy()
        self.problem = build_problem(self.snapshot, self.policy)
        self.ledger = Ledger(self.problem, params)
        for name, (node, first) in placed.items():
            gpus = self.problem.classes[self.index(name)].shape.gpus
            assert place_on_sites(
                self.ledger,
                self.index(name),
                [ReplicaSite(self.node(node), tuple(range(first, first + gpus)))],
            )

    def index(self, name):
        return next(at for at, each in enumerate(self.problem.classes) if name in each.jobs)

    def node(self, name):
        return [node.name for node in self.problem.nodes].index(name)

    def relieved(self, name):
        """The node that then has room for a job; all else is as legal and worth as much as before."""
        before = self.ledger.objective
        nodes = np.arange(len(self.problem.nodes))
        node = SwapRepair(self.ledger, nodes, movable_classes(self.ledger)).swap_for_room(self.index(name))
        assert self.ledger.objective == before
        assert judged(self.snapshot, self.policy, self.target()).violations == ()
        return None if node is None else self.problem.nodes[node].name

    def target(self):
        return target_of(self.ledger, self.snapshot.running_placements)

    def nodes(self, *names):
        held = {placement.job: placement.replicas[0].node for placement in self.target().placements}
        return [held[name] for name in names]


def heavy(name, **more):
    return build.job(name, gpus=1, cpus=12, **more)


def light(name, gpus=1, **more):
    return build.job(name, gpus=gpus, cpus=2 * gpus, **more)


ALL_OF_A_NODE = {f"l{number}": ("n1", number) for number in range(6)}


def lights():
    return [light(name) for name in ALL_OF_A_NODE]


def test_heavy_job_goes_where_cores_are_left_and_a_light_one_takes_its_place():
    jobs = [heavy("h0"), heavy("h1"), *lights(), build.job("waits", gpus=1, cpus=4)]
    world = World(*jobs, placed={"h0": ("n0", 0), "h1": ("n0", 1)} | ALL_OF_A_NODE)

    assert world.relieved("waits") == "n0"
    assert sorted(world.nodes("h0", "h1")) == ["n0", "n1"]
    assert world.nodes(*ALL_OF_A_NODE).count("n0") == 1


def test_two_heavy_jobs_go_where_one_has_as_many_gpus():
    stays = build.job("r", gpus=2, cpus=8, preemptible=False, at=[build.replica("n0", gpus=range(2), cpus=8)])
    pairs = {f"p{number}": ("n1", 2 * number) for number in range(3)}
    jobs = [
        *(build.job(name, gpus=1, cpus=8) for name in "ab"),
        *(build.job(name, gpus=2, cpus=2) for name in pairs),
    ]
    world = World(
        *jobs,
        build.job("waits", gpus=1, cpus=4),
        placed={"a": ("n0", 2), "b": ("n0", 3)} | pairs,
        running=[stays],
    )

    assert world.relieved("waits") == "n0"
    assert world.nodes("a", "b") == ["n1", "n1"]
    assert world.nodes(*pairs).count("n0") == 1


def test_shares_get_cores_in_the_same_way():
    jobs = [heavy("h0"), heavy("h1"), *lights(), build.job("waits", milli=500, cpus=4)]
    world = World(*jobs, placed={"h0": ("n0", 0), "h1": ("n0", 1)} | ALL_OF_A_NODE)

    assert world.relieved("waits") == "n0"


def beside_cores_in_use(*jobs, nodes=None):
    """A heavy job on a node with all other cores in use."""
    held = build.job("r", cpus=12, preemptible=False, at=[build.replica("n0", cpus=12)])
    placed = {"h0": ("n0", 0)} | ALL_OF_A_NODE
    waits = build.job("waits", gpus=1, cpus=4)
    return World(*jobs, *lights(), waits, placed=placed, running=[held], nodes=nodes)


def test_job_that_minds_its_company_stays():
    apart = {"anti_affinity": (AntiAffinity(labels={"app": "x"}),)}

    assert beside_cores_in_use(heavy("h0")).relieved("waits") == "n0"
    assert (
        beside_cores_in_use(heavy("h0", **apart), light("x", labels={"app": "x"})).relieved("waits") is None
    )


def test_job_that_may_not_use_all_nodes_stays():
    nodes = [build.node(f"n{number}", gpus=6, cpus=24, labels={"disk": str(number)}) for number in range(2)]

    world = beside_cores_in_use(heavy("h0", node_selector={"disk": "0"}), nodes=nodes)

    assert world.relieved("waits") is None
    assert world.nodes("h0") == ["n0"]


def test_nothing_is_exchanged_where_no_node_has_cores_to_spare():
    full = {f"h{number}": (node, number % 2) for number, node in enumerate(["n0", "n0", "n1", "n1"])}
    world = World(*(heavy(name) for name in full), light("waits"), placed=full)

    assert world.relieved("waits") is None
    assert world.nodes(*full) == ["n0", "n0", "n1", "n1"]


def crowd(seed):
    """More jobs than fit, a third of them heavy on CPU or memory."""
    draw = random.Random(f"relief {seed}")
    shapes = [(1, 2), (1, 2), (2, 4), (2, 4), (4, 8), (1, 6), (2, 12)]
    jobs = [
        build.job(f"j{number}", gpus=gpus, cpus=cores, weight=draw.choice((1, 2)))
        for number, (gpus, cores) in enumerate(draw.choices(shapes, k=60))
    ]
    return build.snapshot(nodes=build.cluster(8, gpus=8, cpus=24), jobs=jobs)


@pytest.mark.slow
def test_fewer_jobs_of_an_answer_miss_their_places():
    missed = {True: 0, False: 0}
    for seed in range(25):
        snapshot = crowd(seed)
        problem = build_problem(snapshot, Policy())
        x = Columns(problem)
        formulation = formulate(problem, x)
        budget = Budget(float("inf"), ticks=5)
        values = milp.solve(formulation, budget, np.zeros_like(formulation.upper), lambda _: None).values
        for relief in missed:
            params = PlacementParams(rounding=RoundingParams(swap_repair=relief))
            ledger, lost = placing.disaggregate(problem, decode(x, values), params=params)
            missed[relief] += lost
            assert judged(snapshot, Policy(), target_of(ledger, ())).violations == ()
    assert missed[True] < missed[False] * 3 / 4


def test_change_on_the_same_node_is_none():
    jobs = [
        build.job("h", gpus=1, cpus=10),
        build.job("l", gpus=1, cpus=5),
        build.job("other", gpus=1, cpus=2),
    ]
    placed = {"h": ("n0", 0), "l": ("n0", 1), "other": ("n1", 0)}
    world = World(*jobs, build.job("waits", gpus=1, cpus=14), placed=placed)

    assert world.relieved("waits") == "n0"
    assert world.ledger.capacity.free[world.node("n0")][0] >= 14_000
    assert world.nodes("h", "other") == ["n1", "n0"]


def test_it_is_given_up_after_some_nodes_in_vain():
    params = PlacementParams(rounding=RoundingParams(swap_failures=0))
    jobs = [heavy("h0"), heavy("h1"), *lights(), build.job("waits", gpus=1, cpus=4)]

    placed = {"h0": ("n0", 0), "h1": ("n0", 1)} | ALL_OF_A_NODE
    assert World(*jobs, placed=placed, params=params).relieved("waits") is None
