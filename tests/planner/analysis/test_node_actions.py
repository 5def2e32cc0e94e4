"""Actions about nodes: each kind changes a cluster, shows, and is taken back."""

from __future__ import annotations

from typing import get_args

import pytest

from gpuplan.models.plan.actions import NodeAction
from gpuplan.planner.analysis.effects import ClusterView, apply_action, shows
from gpuplan.planner.analysis.node_actions import NODE_RULES, rules_of
from tests.support.samples.all_actions import CHANGES, WORLD

NODE_CHANGES = [change for change in CHANGES if isinstance(change, NodeAction)]


def test_every_kind_has_its_rules():
    kinds = {member.model_fields["type"].default for member in get_args(NodeAction)}

    assert set(NODE_RULES) == kinds


@pytest.mark.parametrize("change", NODE_CHANGES, ids=lambda each: each.id)
def test_it_shows_once_it_is_applied_and_is_taken_back(change):
    view, base = ClusterView(WORLD), WORLD.cluster.node_by_name
    apply_action(view, change)
    after = WORLD.with_nodes(view.nodes.values())

    before = rules_of(change).without(change, view.nodes.get(change.node), base.get(change.node))

    assert shows(change, after, busy=())
    # A drain changes nothing, and only the cluster knows when a new node is ready.
    assert before == (None if change.type in ("drain", "scale_up") else base[change.node])
