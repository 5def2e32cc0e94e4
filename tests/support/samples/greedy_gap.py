"""The smallest question that greedy does not answer at its best, and what the verifier says of answers."""

from __future__ import annotations

from gpuplan.models.verifier.verify import verify_target
from tests.support.builders import build

POLICY = build.by_value(priority=build.BY_WEIGHT)
GREEDY, OPTIMUM, CEILING = 300, 400, 700
"""Points of `contested`."""


def contested():
    """One node of two GPUs: greedy takes the denser small job (300 points), the large one is worth 400."""
    small = build.job("small", gpus=1, priority=2)
    large = build.job("large", gpus=2, priority=1)
    return build.snapshot(nodes=[build.node(gpus=2)], jobs=[small, large])


def judged(snapshot, target):
    """The verifier's answer to a target."""
    return verify_target(snapshot, POLICY, target)
