"""Policy settings that affect no job: they cause no error, but a warning tells the policy's author."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuplan.models.errors import truncated_names
from gpuplan.models.policy.settings import Goal
from gpuplan.planner.formatting import join_first_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot


def settings_without_effect(policy: Policy, snapshot: Snapshot) -> Iterator[str]:
    """Yield one sentence for each setting without effect in plans of this snapshot."""
    objective, chosen = policy.objective, policy.weights
    known = {queue.name for queue in snapshot.queues}
    if missing := sorted(objective.queues.keys() - known):
        yield (
            f"objective.queues names {join_first_names(missing)}, no queue of the snapshot; known: "
            f"{truncated_names(known)}"
        )
    if Goal.VALUE not in objective.goals and {"basis", "ageing"} & chosen.model_fields_set:
        names = [f"weights.{name}" for name in ("basis", "ageing") if name in chosen.model_fields_set]
        yield (
            f"{' and '.join(names)} without effect: only the goal value uses it, and the goal is "
            f"{objective.goal}"
        )
