"""What an earlier plan means for the next one: nothing is left to do, or here is where to begin."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.afterwards import cluster_after
from planner.models.verifier_case import same_holdings

if TYPE_CHECKING:
    from planner.models.job import Job
    from planner.models.plan import Plan
    from planner.models.policy import Policy
    from planner.models.snapshot import Snapshot
    from planner.models.target import Target


def is_settled(live: Snapshot, policy: Policy, last: Plan) -> bool:
    """
    True if the last plan was carried out as a whole and nothing but the clock has changed since.

    What a longer search could still gain is left until something changes, so that a cluster at rest stays at
    rest. With more than one slot the clock alone may call for action, so that nothing is ever settled.
    """
    if policy.horizon.slots > 1 or not _same_rules(policy, last.policy):
        return False
    expected = last.snapshot.model_copy(update={"cluster": cluster_after(last.snapshot, last.target)})
    expected, live = expected.canonical(), live.canonical()
    if any(getattr(expected, part) != getattr(live, part) for part in ("cluster", "queues", "finished")):
        return False
    there = {placement.job: placement.replicas for placement in last.target.placements}
    found = {placement.job: placement.replicas for placement in live.running_placements}
    return (
        {job.name: _asked(job) for job in expected.jobs} == {job.name: _asked(job) for job in live.jobs}
        and there.keys() == found.keys()
        and all(same_holdings(replicas, there[job]) for job, replicas in found.items())
    )


def first_target(live: Snapshot, policy: Policy, last: Plan) -> Target | None:
    """The last plan's target if it answers the very same question; None otherwise."""
    same = live.fingerprint() == last.base.snapshot and _same_rules(policy, last.policy)
    return last.target if same and policy.horizon.slots == 1 else None


def _asked(job: Job) -> Job:
    return job.model_copy(update={"running": None, "promise": None})


def _same_rules(policy: Policy, other: Policy) -> bool:
    """True if two policies differ in nothing but the effort spent."""
    return policy == other.model_copy(update={"budget": policy.budget, "solvers": policy.solvers})
