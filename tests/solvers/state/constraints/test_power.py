"""Power caps in the ledger: one limit on all nodes of a rack."""

import pytest

from gpuplan.models.cluster import Cluster, NodeGpus, RackPower
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.problem_builder import build_problem
from gpuplan.solvers.heuristics import placement
from gpuplan.solvers.state.ledger import Ledger
from tests.support.builders import build


def ledger(watts, replicas, *, per_node=(700, 700)):
    """A gang of replicas with two GPUs each, and a rack of nodes with GPUs of some power."""
    nodes = tuple(
        build.node(f"n{number}", rack="r").model_copy(
            update={"gpus": NodeGpus(model=build.MODEL, count=8, memory_mib=81559, watts=each)}
        )
        for number, each in enumerate(per_node)
    )
    job = build.job("gang", gpus=2, replicas=replicas)
    cluster = Cluster(nodes=nodes, rack_power=(RackPower(rack="r", watts=watts),))
    world = Snapshot(taken_at=build.NOW, cluster=cluster, queues=(build.queue(),), jobs=(job,)).canonical()
    return Ledger(build_problem(world, Policy()))


@pytest.mark.parametrize(
    ("watts", "replicas", "code", "found"),
    [
        (2799, 2, ReasonCode.FRAGMENTED, 1),
        (1399, 2, ReasonCode.RESOURCES, 0),
    ],
)
def test_a_rack_lets_fewer_replicas_run_than_its_nodes_one_by_one(watts, replicas, code, found):
    shortage = ledger(watts, replicas).shortage(0)

    assert (shortage.code, shortage.numbers["found"]) == (code, found)


def test_the_nodes_that_draw_least_are_counted_first():
    # Two GPUs of the first node would leave too little for two of the second.
    rack = ledger(1999, 2, per_node=(700, 300))

    assert rack.shortage(0) is None


def test_a_job_takes_power_and_gives_it_back():
    rack = ledger(2800, 1)
    (option,) = rack.problem.classes[0].options
    mark = rack.undo.mark()

    assert rack.shortage(0) is None
    assert placement.place(rack, 0, option, jobs=1) == 1
    rack.remove(0)
    assert rack.shortage(0) is None
    rack.undo.rollback(mark)
    assert rack.shortage(0) is None
