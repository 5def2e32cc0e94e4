"""
A plan that undoes an earlier one as far as possible, from what was done of it and the present cluster.

It is an ordinary plan: the verifier has judged it, operators review it, apply carries it out, and it can be
rolled back itself.
"""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING

from gpuplan.models.errors import PlannerError
from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.actions import Keep, NodeAction, PoolAction, Wait, changes_of, info_of
from gpuplan.models.plan.reason import Reason, ReasonCode
from gpuplan.models.plan.rollback import GpuLayoutBack, Rollback
from gpuplan.models.plan.solution import Solution, SolveStatus, Undo
from gpuplan.models.units import MILLI
from gpuplan.models.validation.damage import survey_damage
from gpuplan.planner.apply.promises import steps_of
from gpuplan.planner.plan_builder.draft import draft
from gpuplan.planner.plan_file.plan_file import with_id
from gpuplan.planner.rollback.reversals import reversals_of, with_places
from gpuplan.planner.rollback.search import RollbackSearch

if TYPE_CHECKING:
    from datetime import datetime

    from gpuplan.models.placement import Placement, Replica
    from gpuplan.models.plan.actions import Action
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.policy.policy import Policy
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.applied import AppliedPart
    from gpuplan.planner.rollback.reversals import Reversals


SOLVER = "rollback"
"""Name of the source of the placements in a rollback's summary."""


def roll_back(
    plan: Plan,
    applied: AppliedPart,
    *,
    created_at: datetime,
    policy: Policy | None = None,
    stop_started: bool = False,
) -> Plan:
    """
    The plan that undoes what can be undone of a plan; without changes if nothing is left to undo.

    Jobs that the plan started run on, unless a job that goes back needs their places, or `stop_started` is
    set. What stays is in `Plan.rollback`, with its reason. As in every plan, lost places are released first.

    Parameters
    ----------
    policy
        Rules for the rollback; by default those of the plan.

    Raises
    ------
    PlannerError
        The cluster breaks rules even if nothing is undone.
    """
    began = time.perf_counter()
    rules = policy or plan.policy
    damage = survey_damage(applied.live.canonical())
    live = damage.sound.canonical()
    wishes = reversals_of(plan, applied.done, live)
    with_free_gpus(wishes, live, pinned=applied.pins_gpus)
    whole = _touched_by(plan, live)
    found = RollbackSearch(live, rules, whole, wishes).run(stop_started=stop_started)
    if found.verification.violations:
        raise PlannerError(f"the rollback breaks a rule: {found.verification.violations[0]}.")
    order = {step.id: number for number, step in enumerate(steps_of(plan))}
    undo = Rollback(
        plan_id=plan.plan_id,
        done=len(applied.done & {change.id for change in changes_of(plan.actions)}),
        jobs=tuple(sorted(whole.jobs)),
        pools=tuple(sorted(whole.pools)),
        layouts=tuple(
            GpuLayoutBack(node=each.node, gpu=each.gpu, instances=each.instances)
            for each in found.target.undo.layouts
        ),
        stays=tuple(sorted((*wishes.stays, *found.stays), key=lambda each: order.get(each.action, 0))),
    )
    solution = Solution(
        SolveStatus.FEASIBLE,
        SOLVER,
        found.target,
        found.verification.objective,
        None,
        found.verification.objective,
        time.perf_counter() - began,
    )
    made = draft(
        live,
        rules,
        solution,
        found.verification.terms,
        seed=plan.seed,
        created_at=created_at,
        damage=damage,
    )
    told = tuple(_with_reason(action, plan) for action in made.actions)
    waiting = tuple(each.model_copy(update={"reason": _why_it_waits(each.reason)}) for each in made.waiting)
    return with_id(made.model_copy(update={"actions": told, "waiting": waiting, "rollback": undo}))


def _why_it_waits(reason: Reason) -> Reason:
    """The reason of a pending job; one that would fit was not passed over, since no other job is started."""
    if reason.code is not ReasonCode.NOT_CHOSEN:
        return reason
    return reason.model_copy(update={"text": "would fit; a rollback starts only what its plan had stopped"})


def _touched_by(plan: Plan, live: Snapshot) -> Undo:
    """The jobs and pools that a plan changes, of those that are still there."""
    changes = changes_of(plan.actions)
    jobs = {change.job for change in changes if not isinstance(change, NodeAction)}
    pools = {change.pool for change in changes if isinstance(change, PoolAction)}
    return Undo(
        jobs=frozenset(jobs & live.job_by_name.keys()),
        pools=frozenset(pools & {pool.name for pool in live.cluster.pools}),
        rolls_back=True,
    )


def _with_reason(action: Action, plan: Plan) -> Action:
    """The action with the reason that it undoes a plan; the numbers of its own reason stay."""
    if isinstance(action, Wait):
        return action.model_copy(update={"reason": _why_it_waits(action.reason)})
    if isinstance(action, Keep) or not (undoes := info_of(action).undoes):
        return action
    text = undoes.format(plan=f"plan {plan.plan_id[:8]}")
    if action.reason.code is ReasonCode.MAKES_ROOM:
        text = f"{text}; {action.reason.text}"
    reason = Reason(code=ReasonCode.ROLLED_BACK, text=text, numbers=action.reason.numbers)
    return action.model_copy(update={"reason": reason})


# Places of jobs that go back, where the cluster chooses the GPUs of a node: free ones for those in use.
#
# There an index is only a name for one of several equal GPUs, and others may have it now.


def with_free_gpus(wishes: Reversals, live: Snapshot, *, pinned: bool) -> None:
    """
    Exchange whole GPUs in the places of jobs that go back, where a job that stays has them now.

    `pinned` is False if the cluster chooses the GPUs of every node.
    """
    chosen = {
        node.name: node for node in live.cluster.nodes if node.gpus and not (pinned and node.gpus.pinned)
    }
    if not chosen:
        return
    leaving = wishes.jobs.keys() | wishes.started.keys()
    used: dict[str, set[int]] = defaultdict(set)
    fixed: dict[str, set[int]] = defaultdict(set)
    for placed in live.running_placements:
        for replica in placed.replicas:
            indices = {held.index for held in replica.gpus}
            used[replica.node] |= indices
            if placed.job not in leaving:
                fixed[replica.node] |= indices
    for name, reversal in wishes.jobs.items():
        place = reversal.change.places[name]
        for replica in place.replicas if place else ():
            used[replica.node] |= {held.index for held in replica.gpus}
    for name, reversal in wishes.jobs.items():
        if (place := reversal.change.places[name]) is None:
            continue
        replicas = []
        for replica in place.replicas:
            node = chosen.get(replica.node)
            gpus = node.gpus.by_index.values() if node and node.gpus else ()
            free = [
                gpu.index
                for gpu in gpus
                if gpu.healthy and gpu.mig is None and gpu.index not in used[replica.node]
            ]
            replicas.append(_renamed(replica, fixed[replica.node], free) if node else replica)
            used[replica.node] |= {held.index for held in replicas[-1].gpus}
        moved: Placement = place.model_copy(update={"replicas": tuple(replicas)})
        wishes.jobs[name] = with_places(reversal, {name: moved})


def _renamed(replica: Replica, fixed: set[int], free: list[int]) -> Replica:
    """The replica with free GPUs in place of whole ones that others have; as it is if there are too few."""
    taken = [
        held
        for held in replica.gpus
        if isinstance(held, GpuShare) and held.milli == MILLI and held.index in fixed
    ]
    if not taken or len(taken) > len(free):
        return replica
    names = dict(zip((held.index for held in taken), free, strict=False))
    gpus = tuple(
        held.model_copy(update={"index": names.get(held.index, held.index)}) for held in replica.gpus
    )
    return replica.model_copy(update={"gpus": gpus})
