"""What an apply knows of the cluster: its last snapshot, and the steps that began, landed or failed since."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError
from gpuplan.models.placement import same_holdings
from gpuplan.models.plan.actions import Migrate, NodeAction, info_of
from gpuplan.planner.apply.live_view import LiveView
from gpuplan.planner.apply.plan_view import hold_the_same_but_for_gpu_indices
from gpuplan.planner.apply.standing import snapshot_for
from gpuplan.planner.executors.interface import Pin
from gpuplan.planner.text_format import join_first_names

if TYPE_CHECKING:
    from gpuplan.models.job import Job
    from gpuplan.models.placement import Placement
    from gpuplan.models.plan.actions import Change
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.snapshot import Snapshot
    from gpuplan.planner.apply.standing import ApplyProgress
    from gpuplan.planner.executors.interface import Executor

_LOG: Final = logging.getLogger(__name__)


class ApplyView:
    """
    The cluster as the next step of an apply finds it.

    What a step takes is taken once it begins, and also if it failed and may still land. What it frees is used
    only by steps that come after it.
    """

    def __init__(self, plan: Plan, cluster: Executor, live: Snapshot, standing: ApplyProgress) -> None:
        self._plan, self._cluster, self._live, self._standing = plan, cluster, live, standing
        self._begun: dict[str, Change] = {}
        """Steps under way, and those that landed since the snapshot."""
        self._landed: set[str] = set()
        self._at: dict[str, Placement] = {}
        """Where jobs really run that landed elsewhere, by step."""
        self._stray: dict[str, Change] = {}
        """Steps that failed and may still land."""
        self._view = LiveView.of(live, plan.actions, plan.snapshot)

    def check_preconditions(self, step: Change) -> tuple[tuple[str, ...], str]:
        """What the preconditions of a step found here, and why it may not begin; empty if it may."""
        sights = self._view.check_preconditions(step)
        unmet = [str(sight.drift) for sight in sights if sight.drift]
        why = f"a precondition does not hold: {'; '.join(unmet)}" if unmet else ""
        return tuple(sight.text for sight in sights), why

    def begin(self, step: Change) -> None:
        """Note that a step has begun."""
        self._begun[step.id] = step
        self._view.done(step)

    def land(self, step: Change, at: Placement | None) -> str:
        """Note that a step has landed; returns what of its places is not as planned."""
        self._landed.add(step.id)
        self._begun[step.id] = step
        elsewhere = at if at is not None and self._is_elsewhere(step, at) else None
        if elsewhere is not None:
            self._at[step.id] = elsewhere
        if self._stray.pop(step.id, None) is not None or elsewhere is not None:
            self._rebuild()
        if elsewhere is not None:
            return f"runs on {join_first_names(sorted(elsewhere.nodes))}"
        return "" if at is None or isinstance(step, NodeAction) else _other_gpus(at, step.after)

    def _is_elsewhere(self, step: Change, at: Placement) -> bool:
        """True if a job landed on other places than planned, as far as the cluster can be told them."""
        if (
            isinstance(step, NodeAction)
            or step.after is None
            or same_holdings(at.replicas, step.after.replicas)
        ):
            return False
        return Pin.GPU in self._cluster.pins or not hold_the_same_but_for_gpu_indices(at, step.after)

    def withdraw(self, step: Change, *, may_land: bool) -> None:
        """Note that a step is not under way any more and did not land."""
        self._begun.pop(step.id, None)
        self._stray.pop(step.id, None)
        if may_land:
            self._stray[step.id] = step
        self._rebuild()

    def look_again(self, *steps: Change) -> None:
        """
        Read the cluster anew before another attempt of steps; if it does not answer, what is known stays.

        So do the descriptions of their jobs while these wait: an attempt may leave its traces there.
        """
        begun = {*self._begun, *self._stray}
        jobs = self._live.job_by_name
        try:
            found = snapshot_for(self._plan, self._cluster, self._standing, begun)
            for step in steps:
                if not isinstance(step, NodeAction) and (known := jobs.get(step.job)) is not None:
                    found = _with_description_of(found, known)
        except PlannerError as error:
            _LOG.info("phase=apply plan=%s look_again=failed reason=%s", self._plan.plan_id, error)
            return
        self._live = found
        self._begun = {id_: step for id_, step in self._begun.items() if id_ not in self._landed}
        self._rebuild()

    def _rebuild(self) -> None:
        self._view = LiveView.of(self._live, self._plan.actions, self._plan.snapshot)
        for id_, step in self._begun.items():
            self._view.done(step, self._at.get(id_))
        for step in self._stray.values():
            # What the others would free is not free.
            if isinstance(step, Migrate):
                both = (*step.before.replicas, *step.after.replicas)
                self._view.done(step, step.after.model_copy(update={"replicas": both}))
            elif info_of(step).takes:
                self._view.done(step)


def _other_gpus(at: Placement, planned: Placement | None) -> str:
    """The GPUs of a job, if the cluster chose others than the plan expected."""
    expected = {replica.node: replica.shared_gpus for replica in planned.replicas} if planned else {}
    other = [
        f"{','.join(map(str, replica.shared_gpus))} of {replica.node}"
        for replica in at.replicas
        if replica.shared_gpus != expected.get(replica.node)
    ]
    return f"has GPUs {join_first_names(sorted(other))}" if other else ""


def _with_description_of(live: Snapshot, known: Job) -> Snapshot:
    """The snapshot in which a job that waits there, as it did before, is described as before."""
    found = live.job_by_name.get(known.name)
    if found is None or found.running is not None or known.running is not None:
        return live
    jobs = tuple(known if job is found else job for job in live.jobs)
    return live.model_copy(update={"jobs": jobs}).canonical()
