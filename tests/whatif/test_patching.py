"""Each change of a scenario does what it says and nothing else."""

from __future__ import annotations

import pytest
from build import job, node, pool, queue, replica, snapshot
from hypothesis import given
from hypothesis import strategies as st
from strategies import snapshots

from planner.models.calendar import Reservation, Tariff
from planner.models.cluster import RackPower
from planner.models.consistency import inconsistencies
from planner.models.dependency import Dependency
from planner.models.policy import Policy, SolverName
from planner.models.queue import Quota
from planner.models.scenario import Scenario
from planner.models.scenario_changes import Change
from planner.whatif import patching
from planner.whatif.patching import patch

POLICY = Policy()


def patched(world, *changes, policy=POLICY, **about):
    return patch(world, policy, Scenario.model_validate({"name": "s", "changes": changes, **about}))


def after(world, *changes, policy=POLICY):
    """The snapshot after changes that fit."""
    made = patched(world, *changes, policy=policy)
    assert made.misfits == ()
    return made.snapshot


def said(world, *changes, **about):
    """What is wrong with changes that do not fit."""
    return [each.message.split("\n")[0] for each in patched(world, *changes, **about).misfits]


def on(name="n0", gpus=(0,), job_name="r", **more):
    return job(job_name, gpus=len(gpus), at=[replica(name, gpus=gpus)], **more)


@given(snapshots(mig=True, locality=True))
def test_no_change_is_the_very_snapshot(world):
    made = patched(world)

    assert made.snapshot is world
    assert made.policy is POLICY


@given(
    snapshots(mig=True, locality=True),
    st.lists(
        st.sampled_from(
            (
                {"change": "fail_nodes", "nodes": {"all": True, "count": 1}},
                {"change": "remove_nodes", "nodes": {"all": True, "count": 1}},
                {"change": "drain_nodes", "nodes": {"all": True}},
                {"change": "add_nodes", "like": "n0", "count": 2},
                {"change": "replace_gpus", "nodes": {"names": ["n0"]}, "model": "H100-80GB", "count": 2},
                {"change": "scale_demand", "factor": 2.5},
                {"change": "scale_demand", "factor": 0.5},
                {"change": "set_jobs", "jobs": {"waiting": True}, "priority": 7},
            )
        ),
        max_size=3,
    ),
)
def test_changes_that_fit_leave_a_world_that_makes_sense(world, changes):
    made = patched(world, *changes)

    if not list(inconsistencies(world)):
        assert [each for each in made.misfits if each.index is None] == []
        assert made.snapshot == made.snapshot.canonical()


def test_nodes_like_an_existing_one_are_whole_empty_and_where_they_are_wanted():
    broken = node("n0", rack="r1", cordoned=True, nvlink_island="i", details=[{"index": 2, "healthy": False}])
    world = snapshot(nodes=[broken, node("n0-new-1")])

    made = after(world, {"change": "add_nodes", "like": "n0", "count": 2, "rack": "r7"}).cluster.node_by_name

    assert set(made) == {"n0", "n0-new-1", "n0-new-2", "n0-new-3"}
    for new in (made["n0-new-2"], made["n0-new-3"]):
        assert (new.rack, new.cordoned, new.nvlink_island) == ("r7", False, "")
        assert all(gpu.healthy for gpu in new.gpus.by_index.values())


def test_nodes_of_a_pool_are_its_members_and_its_maximum_grows():
    world = snapshot(pools=[pool("spot", most=1)])

    made = after(world, {"change": "add_nodes", "pool": "spot", "count": 3}).cluster

    assert [one.name for one in made.nodes if one.pool == "spot"] == [f"spot-new-{n}" for n in (1, 2, 3)]
    assert made.pools[0].maximum == 3


def test_nodes_may_be_described():
    made = after(snapshot(), {"change": "add_nodes", "node": {"name": "big", "cpus": 4}, "zone": "z"}).cluster

    assert made.node_by_name["big-new-1"].zone == "z"


@pytest.mark.parametrize("change", ["fail_nodes", "remove_nodes"])
def test_what_ran_on_lost_nodes_waits_again_and_all_else_runs_on(change):
    gang = job("gang", gpus=1, replicas=2, at=[replica("n0", gpus=[1]), replica("n1", gpus=[1])])
    world = snapshot(jobs=[on("n0"), on("n1", job_name="other"), gang])

    made = after(world, {"change": change, "nodes": {"names": ["n0"]}})

    assert {each.name for each in made.jobs if each.running} == {"other"}
    found = made.cluster.node_by_name.get("n0")
    assert found is None if change == "remove_nodes" else not found.ready


def test_what_stood_on_removed_nodes_goes_with_them():
    promised = job(
        "p", gpus=1, promise={"start": "2026-11-20T14:00:00Z", "replicas": [replica("n0", gpus=[0])]}
    )
    reservations = [
        Reservation(name="a", duration=60, cron="0 * * * *", nodes=("n0",), queues=("q",)),
        Reservation(name="b", duration=60, cron="0 * * * *", nodes=("n0", "n1"), queues=("q",)),
    ]
    world = snapshot(
        nodes=[node("n0", rack="r0", watts=1), node("n1", rack="r1")],
        jobs=[promised],
        reservations=reservations,
        rack_power=[RackPower(rack="r0", watts=5), RackPower(rack="r1", watts=5)],
    )

    made = after(world, {"change": "remove_nodes", "nodes": {"rack": "r0"}})

    assert made.jobs[0].promise is None
    assert [(each.name, each.nodes) for each in made.cluster.reservations] == [("b", ("n1",))]
    assert [cap.rack for cap in made.cluster.rack_power] == ["r1"]


def test_drained_nodes_keep_what_runs():
    made = after(snapshot(jobs=[on("n0")]), {"change": "drain_nodes", "nodes": {"all": True, "count": 1}})

    assert [one.drain for one in made.cluster.nodes] == [True, False]
    assert made.jobs[0].running


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ({"rack": "r1"}, "ab"),
        ({"rack": "r1", "zone": "z2"}, "b"),
        ({"region": "eu"}, "c"),
        ({"pool": "spot"}, "c"),
        ({"gpu_model": "T4"}, "b"),
        ({"labels": {"tier": "gold"}}, "ac"),
        ({"names": ["b", "c"]}, "bc"),
        ({"all": True, "count": 2}, "ab"),
        ({"all": True}, "abc"),
    ],
)
def test_nodes_are_chosen_by_all_conditions_together(choice, chosen):
    gold = {"labels": {"tier": "gold"}}
    world = snapshot(
        nodes=[
            node("a", rack="r1", zone="z1", **gold),
            node("b", rack="r1", zone="z2", model="T4"),
            node("c", region="eu", pool="spot", **gold),
        ]
    )

    made = after(world, {"change": "drain_nodes", "nodes": choice})

    assert "".join(one.name for one in made.cluster.nodes if one.drain) == chosen


def test_jobs_stay_on_other_gpus_only_if_they_may_use_them():
    gang = job("gang", gpus=1, replicas=2, at=[replica("n0", gpus=[4]), replica("n1", gpus=[4])])
    sliced = job("sliced", mig={"1g.10gb": 1}, at=[replica("n0", mig=[(5, "1g.10gb", 0)])])
    world = snapshot(
        nodes=[
            node("n0", mig={5: [("1g.10gb", 0)]}),
            node("n1"),
            node("n2", model="T4", gpu_memory_mib=15360),
        ],
        jobs=[
            on("n0", (0,), "any"),
            on("n0", (1,), "picky", gpu_models={"H100-80GB": 1}),
            on("n0", (7,), "high"),
            on("n1", (0,), "elsewhere", gpu_models={"H100-80GB": 1}),
            gang,
            sliced,
        ],
    )

    made = after(world, {"change": "replace_gpus", "nodes": {"names": ["n0"]}, "model": "T4", "count": 6})

    assert {each.name for each in made.jobs if each.running} == {"any", "elsewhere"}
    gpus = made.cluster.node_by_name["n0"].gpus
    assert (gpus.model, gpus.count, gpus.memory_mib, gpus.details) == ("T4", 6, 15360, ())


@pytest.mark.parametrize(("memory_mib", "stays"), [(16_000, True), (15_999, False)])
def test_a_share_stays_on_other_gpus_if_its_part_of_their_memory_is_enough(memory_mib, stays):
    share = job("share", milli=500, at=[replica("n0", gpus=[0], milli=500)])
    wanting = share.model_copy(update={"request": share.request.model_copy(update={"gpu_memory_mib": 8_000})})
    change = {"change": "replace_gpus", "nodes": {"names": ["n0"]}, "model": "V100", "memory_mib": memory_mib}

    [made] = after(snapshot(jobs=[wanting]), change).jobs

    assert (made.running is not None) == stays


def test_slices_of_profiles_that_other_gpus_do_not_have_are_lost():
    sliced = job("sliced", mig={"1g.10gb": 1}, at=[replica("n0", mig=[(5, "1g.10gb", 0)])])
    wanting = sliced.model_copy(update={"request": sliced.request.model_copy(update={"gpu_memory_mib": 1})})
    world = snapshot(nodes=[node("n0", mig={5: [("1g.10gb", 0)]})], jobs=[wanting])

    [made] = after(world, {"change": "replace_gpus", "nodes": {"all": True}, "model": "A100-40GB"}).jobs

    assert made.running is None


def test_prices_are_set_or_multiplied():
    tariff = Tariff(name="peak", cron="0 17 * * *", duration=60, price_per_gpu_hour=2)
    spot = pool("spot", template=node("spot", price_per_hour=4))
    world = snapshot(nodes=[node("n0", price_per_hour=3)], pools=[spot], tariffs=[tariff])

    half = after(
        world,
        {
            "change": "set_price",
            "nodes": {"all": True},
            "pools": ["spot"],
            "tariffs": ["peak"],
            "factor": 0.5,
        },
    ).cluster
    free = after(world, {"change": "set_price", "tariffs": ["peak"], "value": 0}).cluster

    assert half.nodes[0].price_per_hour == 1.5
    assert half.pools[0].template.price_per_hour == 2
    assert half.tariffs[0].price_per_gpu_hour == 1
    assert free.tariffs == ()


def test_quotas_are_set_multiplied_and_lifted():
    world = snapshot(queues=[queue("q", nominal=4, borrowing=2, T4=3)])

    def quota(**change):
        return after(world, {"change": "set_quota", "queue": "q", **change}).queues[0]

    assert quota(factor=1.5, guarantee=1).quota == Quota(nominal=6, borrowing_limit=2, guarantee=1)
    assert quota(nominal=1, borrowing_limit=0).quota == Quota(nominal=1, borrowing_limit=0)
    assert quota(unlimited=True).quota is None
    assert quota(gpu_model="T4", nominal=1).gpu_models == {"T4": Quota(nominal=1)}
    assert quota(gpu_model="T4", unlimited=True).gpu_models == {}
    assert quota(gpu_model="A10", nominal=1).gpu_models == {"A10": Quota(nominal=1), "T4": Quota(nominal=3)}


def test_jobs_count_more_or_are_let_go():
    world = snapshot(jobs=[job("a", held=True, user="ada", weight=2), job("b", user="bob")])

    made = after(
        world,
        {
            "change": "set_jobs",
            "jobs": {"user": "ada"},
            "weight_factor": 1.5,
            "priority": 3,
            "held": False,
        },
    ).job_by_name

    assert (made["a"].weight_milli, made["a"].priority, made["a"].held) == (3000, 3, False)
    assert made["b"] == world.job_by_name["b"]


def test_jobs_come_and_go():
    world = snapshot(jobs=[on("n0"), job("b")])
    new = {"name": "new", "queue": "q", "submitted_at": "2026-11-20T11:00:00Z", "request": {"gpus": 1}}

    made = after(
        world, {"change": "add_jobs", "jobs": [new]}, {"change": "remove_jobs", "jobs": {"names": ["r"]}}
    )

    assert [each.name for each in made.jobs] == ["b", "new"]


@given(st.integers(1, 9), st.sampled_from((0, 0.25, 0.5, 1, 1.5, 2, 2.25, 10)), st.integers(0, 3))
def test_demand_is_scaled_to_the_nearest_job(count, factor, seed):
    world = snapshot(jobs=[on("n0"), *(job(f"w{index}", gpus=1) for index in range(count))])
    change = {"change": "scale_demand", "factor": factor, "seed": seed}

    made = after(world, change)

    waiting = [each for each in made.jobs if not each.running]
    assert abs(len(waiting) - factor * count) <= 0.5
    assert made == after(world, change)
    assert len(made.jobs) - len(waiting) == 1


def test_copies_stand_to_each_other_as_their_originals_do():
    world = snapshot(
        jobs=[
            on("n0", job_name="runs"),
            job("a", co_start="pair"),
            job("b", co_start="pair"),
            job("c", depends_on=(Dependency(job="a"), Dependency(job="runs"))),
        ]
    )

    made = after(world, {"change": "scale_demand", "factor": 3}).job_by_name

    for number in (1, 2):
        assert made[f"a-copy-{number}"].co_start == made[f"b-copy-{number}"].co_start == f"pair-copy-{number}"
        assert [each.job for each in made[f"c-copy-{number}"].depends_on] == [f"a-copy-{number}", "runs"]


def test_only_one_queue_may_be_scaled():
    world = snapshot(jobs=[job("a"), job("b", queue="p")], queues=[queue(), queue("p")])

    made = after(world, {"change": "scale_demand", "factor": 2, "queue": "p"})

    assert [each.name for each in made.jobs] == ["a", "b", "b-copy-1"]


def test_a_partial_policy_is_merged_deep():
    policy = Policy.model_validate({"prices": {"guarantee": 7, "migration": 3}, "budget": {"ticks": 4}})
    change = {"change": "set_policy", "policy": {"prices": {"guarantee": 9}, "horizon": {"slots": 1}}}

    made = patched(snapshot(), change, policy=policy).policy

    assert made.prices.guarantee == 9
    assert made.prices.migration == 3
    assert made.budget.ticks == 4


def test_a_knob_is_set_to_its_default_if_it_is_named():
    policy = Policy.model_validate({"prices": {"guarantee": 7}})

    made = patched(
        snapshot(), {"change": "set_policy", "policy": {"prices": {"guarantee": 100_000}}}, policy=policy
    )

    assert made.policy == Policy()


def test_what_a_merged_policy_contradicts_is_told():
    aggressive = {"backfill": {"mode": "aggressive", "max_delay": "1h"}}
    policy = Policy.model_validate({"horizon": {"slots": 2, **aggressive}})

    found = said(
        snapshot(),
        {"change": "set_policy", "policy": {"horizon": {"backfill": {"mode": "conservative"}}}},
    )
    made = patched(
        snapshot(),
        {"change": "set_policy", "policy": {"horizon": {"backfill": {"mode": "conservative"}}}},
        policy=policy,
    )

    assert found == []
    assert "max_delay only with mode aggressive" in made.misfits[0].message


def test_a_knob_that_goes_with_another_is_judged_beside_the_policys():
    policy = Policy.model_validate({"horizon": {"backfill": {"mode": "aggressive", "max_delay": "1h"}}})
    change = {"change": "set_policy", "policy": {"horizon": {"backfill": {"max_delay": "2h"}}}}

    made = patched(snapshot(), change, policy=policy)

    assert made.misfits == ()
    assert made.policy.horizon.backfill.max_delay == 7200
    [fault] = said(snapshot(), change)
    assert fault.startswith("the policy in horizon.backfill: expected max_delay only with mode aggressive")


def test_the_solver_is_replaced():
    def solvers(name):
        return patched(snapshot(), {"change": "set_solver", "solver": name}).policy.solvers

    assert solvers("cpsat") == (SolverName.CPSAT,)
    assert solvers("greedy") == ()


def test_everything_that_does_not_fit_is_told_at_once():
    world = snapshot(nodes=[node("n0", rack="r1"), node("cpu", gpus=0)], pools=[pool("spot")])

    found = said(
        world,
        {"change": "fail_nodes", "nodes": {"rack": "r2"}},
        {"change": "fail_nodes", "nodes": {"rack": "r1", "gpu_model": "T4"}},
        {"change": "drain_nodes", "nodes": {"rack": "r1", "pool": "p"}},
        {"change": "drain_nodes", "nodes": {"all": True, "count": 9}},
        {"change": "add_nodes", "like": "n1"},
        {"change": "add_nodes", "pool": "spoot"},
        {"change": "replace_gpus", "nodes": {"names": ["cpu"]}, "model": "T4"},
        {"change": "set_pool", "pool": "spot", "min": 9},
        {"change": "set_quota", "queue": "q", "factor": 2},
        {"change": "set_jobs", "jobs": {"user": "ada"}, "priority": 1},
        {"change": "add_jobs", "jobs": [{"name": "x", "queue": "z", "submitted_at": "2026-11-20T11:00:00Z"}]},
        expectations=[{"job": "nobody", "runs": True}],
    )

    assert found == [
        "there is no rack 'r2'.",
        "there is no node with GPU model 'T4'.",
        "there is no node of pool 'p'.",
        "2 nodes meet these conditions; expected at least 9.",
        "there is no node 'n1'.",
        "there is no pool 'spoot'.",
        "node 'cpu' has no GPUs to be replaced; expected a count beside the model.",
        "pool 'spot' would have min 9 and max 4; expected min <= max.",
        "queue 'q' has no quota to be changed; expected a nominal one.",
        "there is no job of user 'ada'.",
        "there is no queue 'z'.",
        "there is no job 'nobody'.",
    ]


def test_what_makes_no_sense_together_is_told():
    world = snapshot(jobs=[job("a"), job("b", depends_on=(Dependency(job="a"),))])

    assert "depends on" in said(world, {"change": "remove_jobs", "jobs": {"names": ["a"]}})[0]


def test_changes_are_made_in_their_order():
    world = snapshot(nodes=[node("n0")])
    grow = {"change": "add_nodes", "like": "n0", "rack": "new"}

    assert len(after(world, grow, {"change": "fail_nodes", "nodes": {"rack": "new"}}).cluster.nodes) == 2
    assert said(world, {"change": "fail_nodes", "nodes": {"rack": "new"}}, grow)


def test_every_change_of_a_document_can_be_made():
    arms = set(Change.__args__[0].__args__)

    assert set(patching._MAKERS) == arms
    assert len({arm.model_fields["change"].annotation for arm in arms}) == len(arms)
