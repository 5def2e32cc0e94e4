"""What more nodes are worth, by the linear relaxation and by planning again."""

from __future__ import annotations

from gpuplan.models.policy.policy import BudgetMode, BudgetPolicy
from gpuplan.planner.render.style import Style
from gpuplan.planner.render.whatif.answers import sensitivity_text
from gpuplan.planner.whatif.sensitivity import equivalent_nodes, sensitivity
from gpuplan.solvers.worker import ChildOutcome
from tests.support.builders.build import by_value, job, node, pool, snapshot
from tests.support.doubles.task_engines import Failing, Here

POLICY = by_value(budget=BudgetPolicy(mode=BudgetMode.DETERMINISTIC))


def valued(world, *, steps=(1, 2), engine=None, policy=POLICY):
    return sensitivity(world, policy, equivalent_nodes(world), engine or Here(), seed=0, steps=steps)


def text(found):
    return sensitivity_text(found, Style(width=80))


def test_a_node_is_worth_the_jobs_that_run_on_it_until_none_is_left():
    waiting = [job(f"j{index}", gpus=8, gpu_models=["H100-80GB"]) for index in range(3)]
    world = snapshot(nodes=[node("n0"), node("t0", gpus=8, model="T4")], jobs=waiting)

    h100, t4 = valued(world, steps=(1, 2, 4)).kinds

    assert (h100.kind, h100.nodes, h100.marginal) == ("8 × H100-80GB", 1, 800)
    assert [(step.nodes, step.gain, step.jobs, step.doubt) for step in h100.steps] == [
        (1, 800, 1, 0),
        (2, 1600, 2, 0),
        (4, 1600, 2, 0),
    ]
    assert t4.marginal == 0
    assert [step.gain for step in t4.steps] == [0, 0, 0]


def test_kinds_are_told_by_their_commonest_shape_and_pools_add_their_own():
    world = snapshot(
        nodes=[
            node("a", cpus=16, cordoned=True),
            node("b", cpus=32),
            node("c", cpus=16),
            node("d", gpus=0, cpus=64),
        ],
        pools=[
            pool("same", template=node("same")),
            pool("new", template=node("fresh", gpus=2, model="T4")),
        ],
    )

    kinds = equivalent_nodes(world)

    assert [(kind.kind, kind.like, kind.nodes, kind.pool) for kind in kinds] == [
        ("8 × H100-80GB", "c", 3, None),
        ("64 CPUs", "d", 1, None),
        ("2 × T4", "fresh", 0, "new"),
    ]


def test_nodes_of_a_pool_that_is_empty_are_valued_too():
    grown = pool("p", template=node("p", gpus=8, price_per_hour=1), most=0)
    world = snapshot(nodes=[], jobs=[job("a", gpus=8)], pools=[grown])

    [kind] = valued(world, steps=(1,)).kinds

    assert (kind.pool, kind.marginal, kind.steps[0].gain) == ("p", 800, 800)


def test_pools_that_are_equal_in_words_have_values_of_their_own():
    disks = {"fast": {"disk": "nvme"}, "slow": {}}
    pools = [pool(name, template=node(name, labels=labels), most=0) for name, labels in disks.items()]
    picky = job("a", gpus=8, node_selector={"disk": "nvme"})

    found = valued(snapshot(nodes=[], jobs=[picky], pools=pools), steps=(1,))

    assert [(kind.pool, kind.marginal, kind.steps[0].gain) for kind in found.kinds] == [
        ("fast", 800, 800),
        ("slow", 0, 0),
    ]
    assert "8 × H100-80GB, pool slow" in text(found)


def test_what_failed_is_told_with_its_pool():
    world = snapshot(nodes=[], pools=[pool("spot")])

    found = valued(world, steps=(1,), engine=Failing(3))

    assert [each.partition(": planning")[0] for each in found.failures] == [
        "1 more: 8 × H100-80GB, pool spot"
    ]


def test_what_could_not_be_planned_is_unknown_and_told():
    world = snapshot(nodes=[node("n0")], jobs=[job("a", gpus=16)])
    # In this order: base, its relaxation, that with one node more, one more, two more.
    found = valued(world, engine=Failing(2, 4, outcome=ChildOutcome(killed=True)))

    [kind] = found.kinds
    assert kind.marginal is None
    assert [step.gain for step in kind.steps] == [0, None]
    assert found.failures == (
        "relaxation of 1 more: 8 × H100-80GB: relaxing did not end in time and was killed",
        "2 more: 8 × H100-80GB: planning did not end in time and was killed",
    )
    assert not found.sound
    assert "8 × H100-80GB    1         ?       +0   ?" in text(found)


def test_where_there_is_nothing_to_have_more_of_that_is_said():
    shown = text(valued(snapshot(nodes=[])))

    assert shown.endswith("\n\nThere are neither nodes nor pools that there could be more of.\n")
    assert "MARGINAL" not in shown


def test_both_columns_are_named_and_explained():
    world = snapshot(nodes=[node("n0")], jobs=[job("a", gpus=8), job("b", gpus=8)])

    shown = text(valued(world))

    assert "MARGINAL  PLANNED" in shown
    assert "8 × H100-80GB    1      +800     +800  +800" in shown
    assert "parts of jobs" in " ".join(shown.split())
    assert "(proven best)" in " ".join(shown.split())
