"""A cluster that can be told the nodes of a job but not its GPUs, as Slurm."""

from __future__ import annotations

from dataclasses import replace

from gpuplan.models.placement import GpuShare
from gpuplan.models.plan.actions import NodeAction
from gpuplan.planner.executors.interface import ActionPhase, Pin
from tests.support.doubles.wrapped_cluster import Wrapped


class ChoosyCluster(Wrapped):
    """
    The simulated cluster, which takes any free GPUs of the planned nodes; for jobs with whole GPUs.

    It says where a job landed.
    """

    pins = frozenset({Pin.NODE})

    def __init__(self, inner, draw):
        super().__init__(inner)
        self.draw = draw

    def begin(self, action, key):
        if not isinstance(action, NodeAction):
            action = self._as_it_likes(action)
        progress = self.inner.begin(action, key)
        at = None if isinstance(action, NodeAction) else action.after
        return replace(progress, placement=at) if progress.phase is ActionPhase.LANDED else progress

    def _as_it_likes(self, action):
        """The action on the GPUs that the job has, and on free ones."""
        live = self.inner.snapshot()
        own = live.job_by_name[action.job].placement
        if action.after is None:
            return action.model_copy(update={"before": own})
        left = list(own.replicas) if own and action.type != "migrate" else []
        used = {
            (one.node, held.index)
            for placed in live.running_placements
            if placed.job != action.job or action.type != "migrate"
            for one in placed.replicas
            for held in one.gpus
        }
        replicas = []
        for wanted in action.after.replicas:
            same = next((one for one in left if one.node == wanted.node), None)
            if same is not None:
                left.remove(same)
                replicas.append(same)
                continue
            free = [
                index
                for index in live.cluster.node_by_name[wanted.node].gpus.by_index
                if (wanted.node, index) not in used
            ]
            chosen = self.draw.sample(free, len(wanted.gpus))
            used |= {(wanted.node, index) for index in chosen}
            gpus = tuple(GpuShare(index=index, milli=1000) for index in chosen)
            replicas.append(wanted.model_copy(update={"gpus": gpus}))
        after = action.after.model_copy(update={"replicas": tuple(replicas)})
        return action.model_copy(update={"before": own, "after": after})
