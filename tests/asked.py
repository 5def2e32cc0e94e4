"""The question that a snapshot asks, in one line."""

from __future__ import annotations

import build

from planner.models.policy import Policy
from planner.posing import pose


def posed(policy=None, **more):
    return pose(build.snapshot(**more), Policy(**policy or {}))


def names(problem, groups):
    return {problem.nodes[index].name for group in groups for index in problem.groups[group].nodes}


def allowed(problem, number=0):
    """Names of the nodes that a class may use."""
    return names(problem, [group for option in problem.classes[number].options for group in option.groups])
