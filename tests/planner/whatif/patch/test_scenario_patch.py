"""Scenarios as a whole: all of a scenario's changes, in their order, or all that does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuplan.models.dependency import Dependency
from gpuplan.models.validation.checks import inconsistencies
from gpuplan.planner.whatif.patch.scenario import Change
from tests.support.builders.build import job, node, pool, snapshot
from tests.support.harness.patch_helpers import POLICY, after, patched, said
from tests.support.output.golden import golden_section
from tests.support.strategies.snapshot_strategies import snapshots

TEXTS = Path(__file__).with_name("texts.golden.txt")


@pytest.mark.slow
@given(snapshots(mig=True, locality=True))
def test_no_change_is_the_very_snapshot(world):
    made = patched(world)

    assert made.snapshot is world
    assert made.policy is POLICY


@pytest.mark.slow
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
    assume(not any(inconsistencies(world)))

    made = patched(world, *changes)

    assert [each for each in made.misfits if each.index is None] == []
    assert made.snapshot == made.snapshot.canonical()


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
        expectations=[{"job": "unknown", "runs": True}],
    )

    text = "".join(f"{line}\n" for line in found)
    assert text == golden_section(TEXTS, "what does not fit", text)


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

    assert all(callable(arm.apply) for arm in arms)
    assert len({arm.model_fields["change"].annotation for arm in arms}) == len(arms)
