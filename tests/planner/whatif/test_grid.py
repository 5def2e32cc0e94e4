"""Knobs are turned one step at a time, and all that is wrong with them is told at once."""

from __future__ import annotations

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.models.policy.policy import Policy
from gpuplan.planner.whatif.grid import Grid
from tests.support.builders.build import job, node, pool, queue, snapshot

POLICY = Policy()
WORLD = snapshot(
    nodes=[node("n0", gpus=4)],
    jobs=[job(f"j{index}", gpus=2) for index in range(4)],
    queues=[queue("q", nominal=4)],
    pools=[pool("p", template=node("p", gpus=2, price_per_hour=1), most=0)],
)


def points(*knobs, world=WORLD, policy=POLICY):
    return [patched for _, patched in Grid.read(knobs).apply(world, policy)]


def refused(*knobs, world=WORLD):
    with pytest.raises(BadInputError) as error:
        points(*knobs, world=world)
    return str(error.value)


def test_a_point_is_a_patch_with_the_origins_of_its_changes():
    made, problems = Grid.read(["prices.drain=5", "pool:p=0,2"]).points()

    assert problems == []
    assert [(each.values, each.name) for each in made] == [
        (("5", "0"), "prices.drain=5, pool:p=0"),
        (("5", "2"), "prices.drain=5, pool:p=2"),
    ]
    assert [each.origins for each in made] == [("prices.drain=5",), ("pool:p=2", "prices.drain=5")]
    assert [len(each.patch.changes) for each in made] == [1, 2]


@pytest.mark.parametrize(
    ("knob", "change"),
    [
        ("prices.guarantee=7", lambda made: made.policy.prices.guarantee == 7),
        ("disruption.preempt=false", lambda made: made.policy.disruption.preempt is False),
        ("horizon.length=2h", lambda made: made.policy.horizon.length == 7200),
        ("quota:q=9", lambda made: made.snapshot.queues[0].quota.nominal == 9000),
        ("demand=2", lambda made: len(made.snapshot.jobs) == 8),
        ("demand:q=0.5", lambda made: len(made.snapshot.jobs) == 2),
        ("pool:p=2", lambda made: len(made.snapshot.cluster.nodes) == 3),
        ("pool:p=0", lambda made: made.snapshot == WORLD),
        ("like:n0=1", lambda made: len(made.snapshot.cluster.nodes) == 2),
        ("price:p=4.5", lambda made: made.snapshot.cluster.pools[0].template.price_per_hour == 4.5),
        ("solver=greedy", lambda made: made.policy.solvers == ()),
    ],
)
def test_each_knob_turns_what_it_names(knob, change):
    [made] = points(knob)

    assert made.misfits == ()
    assert change(made)


def test_all_that_is_wrong_with_knobs_is_told_at_once():
    told = refused("prices.guarante=1,2", "quota:z=1,x")

    assert "prices.guarante=1: the policy has unknown field 'guarante' in prices." in told
    assert "Maybe 'guarantee' was meant." in told
    assert "quota:z=1: there is no queue 'z'." in told
    assert "quota:z=x: the knob has nominal = 'x'" in told
    assert told.count("quota:z=1:") == 1


@pytest.mark.parametrize("value", ["on", "yes", "1:30", "012:0", "&a", "[1"])
def test_values_are_read_as_policy_files_are(value):
    """To YAML 1.1 `on` is true and `1:30` is 90."""
    told = refused(f"objective.goal={value}")

    assert told.startswith(f"objective.goal={value}: the policy has objective.goal = {value!r}")


@pytest.mark.parametrize("name", ["quota", "quotas:q", "price"])
def test_a_knob_that_there_is_not_is_told_with_those_that_there_are(name):
    told = refused(f"{name}=1")

    assert told.startswith(f"{name}=1: there is no such knob.\n  Known: demand, demand:NAME, like:NAME,")
    assert f"Maybe '{name.partition(':')[0].removesuffix('s')}:NAME' was meant." in told


def company(**quotas):
    """Two queues of one company that is guaranteed 20 GPUs."""
    below = [queue(name, nominal=nominal, parent="company") for name, nominal in quotas.items()]
    return snapshot(queues=[queue("company", nominal=5, guarantee=20), *below], jobs=[job("a", queue="one")])


def test_values_that_are_wrong_together_are_refused_together():
    told = refused("quota:one=0,20", "quota:two=2", world=company(one=20, two=0))

    assert told.startswith("quota:one=0, quota:two=2: queue 'company'")
    assert "quota:one=20" not in told


def test_values_that_are_right_together_need_not_be_so_alone():
    made = points("quota:one=0", "quota:two=20", world=company(one=20, two=0))

    assert [patched.misfits for patched in made] == [()]


BACKFILL = ("horizon.backfill.mode=aggressive", "horizon.backfill.max_delay=60,120")


def test_knobs_of_the_policy_are_judged_in_one_policy():
    made = points(*BACKFILL)

    assert [each.policy.horizon.backfill.max_delay for each in made] == [60, 120]
    assert refused(BACKFILL[0]).startswith(
        f"{BACKFILL[0]}: the policy in horizon.backfill: expected a max_delay"
    )
    told = refused("horizon.backfill.mode=aggressive", "horizon.backfill.max_delay=0")
    assert told.startswith("horizon.backfill.mode=aggressive, horizon.backfill.max_delay=0: the policy in")


def test_a_knob_goes_with_what_the_policy_has():
    policy = Policy.model_validate({"horizon": {"backfill": {"mode": "aggressive", "max_delay": 60}}})

    [made] = points("horizon.backfill.max_delay=2h", policy=policy)

    assert made.policy.horizon.backfill.max_delay == 7200
    assert made.policy.horizon.backfill.mode == "aggressive"


@pytest.mark.parametrize(
    "knobs",
    [
        ["prices.guarantee"],
        ["=1"],
        ["a.b="],
        ["a.b=1,,2"],
        ["prices.guarantee=1,1"],
        ["demand=1", "demand=2"],
        ["demand=1", "quota:q=1", "pool:p=1"],
        ["demand=["],
        ["solver=scip"],
        ["price:x=1"],
    ],
)
def test_knobs_that_are_none_are_refused(knobs):
    with pytest.raises(BadInputError):
        points(*knobs)
