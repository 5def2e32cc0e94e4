"""Each change of prices, quotas, policy and solver does what it says and nothing else."""

from __future__ import annotations

from gpuplan.models.calendar import Tariff
from gpuplan.models.policy.policy import Policy, SolverName
from gpuplan.models.queue import CpuQuota, MemoryQuota, Quota
from tests.support.builders.build import node, pool, queue, snapshot
from tests.support.harness.patch_helpers import after, patched, said


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


def test_quotas_of_cpu_cores_and_memory():
    world = snapshot(queues=[queue("q", nominal=4, cpus=(8, 2, None))])

    def changed(**change):
        return after(world, {"change": "set_quota", "queue": "q", **change}).queues[0]

    assert changed(resource="cpus", factor=1.5).cpus == CpuQuota(nominal=12, borrowing_limit=2)
    assert changed(resource="cpus", nominal="500m", lending_limit=0).cpus == CpuQuota(
        nominal=0.5, borrowing_limit=2, lending_limit=0
    )
    assert changed(resource="cpus", unlimited=True).cpus is None
    assert changed(resource="memory", nominal="64Gi").memory == MemoryQuota(nominal=65536)
    assert changed(resource="memory", nominal=1000, borrowing_limit="1Gi").memory == MemoryQuota(
        nominal=1000, borrowing_limit=1024
    )
    assert changed(resource="memory", nominal="2Ti").memory == MemoryQuota(nominal="2Ti")
    assert changed(resource="memory", nominal=1).quota == Quota(nominal=4)


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
    change = {"change": "set_policy", "policy": {"horizon": {"backfill": {"mode": "conservative"}}}}

    assert said(snapshot(), change) == []
    [fault] = said(snapshot(), change, policy=policy)
    assert "max_delay only with mode aggressive" in fault


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
