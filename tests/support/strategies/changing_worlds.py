"""Small random worlds in which a plan may change everything, and a policy that lets it."""

from __future__ import annotations

from hypothesis import assume
from hypothesis import strategies as st

from gpuplan.models.cluster import NodePool
from gpuplan.models.policy.policy import MigPolicy, Prices
from gpuplan.models.validation.checks import inconsistencies
from tests.support.samples.all_actions import MOVING
from tests.support.strategies.snapshot_strategies import COIN, ONE_IN_FOUR, snapshots

FREE_HAND = MOVING.model_copy(
    update={
        "mig": MigPolicy(switch_mode=True),
        "prices": Prices(disruption=1),
        "disruption": MOVING.disruption.model_copy(update={"reclaim": False}),
    }
)
"""
A policy under which everything may be changed, at low prices.

But for quotas taken back: what is missing from one counts only once a borrower runs, hence in the next plan.
"""


@st.composite
def worlds(draw):
    """Nodes of which some are to be drained, and a pool with one idle node and room for two more."""
    world = draw(snapshots(mig=True, locality=draw(COIN)))
    nodes = [node.model_copy(update={"drain": draw(ONE_IN_FOUR)}) for node in world.cluster.nodes]
    fresh = {"name": "cloud", "pool": None, "drain": False, "cordoned": False, "ready": True}
    template = nodes[0].model_copy(update=fresh)
    idle = template.model_copy(update={"name": "cloud-7", "pool": "cloud"})
    pool = NodePool(name="cloud", template=template, max=3, provisioning="5m")
    added = {"nodes": (*nodes, idle), "pools": (*world.cluster.pools, pool)}
    cluster = world.cluster.model_copy(update=added)
    world = world.model_copy(update={"cluster": cluster}).canonical()
    assume(not any(inconsistencies(world)))
    return world
