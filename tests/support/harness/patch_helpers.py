"""Worlds as scenarios have them, or what keeps a scenario from being one."""

from __future__ import annotations

from gpuplan.planner.whatif.patch.scenario import Scenario, apply_scenario
from tests.support.builders.build import by_value, job, replica

POLICY = by_value()


def patched(world, *changes, policy=POLICY, **about):
    return apply_scenario(world, policy, Scenario.model_validate({"name": "s", "changes": changes, **about}))


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
