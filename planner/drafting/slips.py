"""Why a promise is put off or withdrawn: what stands on the promised places at the promised time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.clock import clock
from planner.drafting.waits_for import overlap
from planner.models.units import MILLI
from planner.quota_room import QuotaRoom
from planner.waiting.prerequisites import Prerequisites
from planner.waiting.time_words import until_done, window_text
from planner.wording import counted, duration

if TYPE_CHECKING:
    from planner.future import Future, Stay
    from planner.models.job import Job
    from planner.models.promise import Promise


class Slips:
    """Answers for the jobs of one plan that wait and hold a promise."""

    def __init__(self, future: Future) -> None:
        self._future = future
        self._prerequisites = Prerequisites(future)

    def text(self, name: str) -> str:
        """Why the promise of a job is not kept as it was; empty if it is kept, or its start comes earlier."""
        job = self._future.snapshot.job_by_name[name]
        promise, planned = job.promise, self._future.planned.get(name)
        if promise is None or job.running is not None:
            return ""
        start = None if planned is None else self._future.slots.edges[planned.slot]
        promised = self._future.second(promise.start)
        if planned is not None and planned.promised and start is not None and start <= promised:
            return ""
        return (
            self._policy(start, promised)
            or self._of_the_job(job, promised)
            or self._of_its_nodes(job, promise)
            or self._of_its_places(job, promise)
            or self._of_quota(job)
            or "other promises"
        )

    def _policy(self, start: int | None, promised: int) -> str:
        """What the policy has to say about it."""
        horizon = self._future.policy.horizon
        if self._future.slots.count == 1:
            return "the policy looks no further than this instant"
        rules = horizon.backfill
        if start is not None and promised < start <= promised + rules.max_delay:
            return f"by at most the policy's max_delay of {duration(rules.max_delay)}"
        held = sum(each.promised for each in self._future.planned.values())
        if start is not None and start <= promised and rules.depth is not None and held >= rules.depth:
            return f"the policy promises a start to {counted(rules.depth, 'job')} at a time"
        if promised >= self._future.slots.end:
            return "it is beyond the policy's horizon"
        return ""

    def _of_the_job(self, job: Job, promised: int) -> str:
        """Its own conditions, which are met only later or never."""
        if job.held:
            return "it is held by its user or an operator"
        now = self._future.snapshot.taken_at
        if job.depends_on:
            state = self._prerequisites.dependencies(job)
            if state.hopeless:
                return "what it depends on can never come true any more"
            late = [
                each
                for each in state.decisive
                if each.slot is None or self._future.slots.edges[each.slot] > promised
            ]
            if late:
                return f"waits until {until_done(late)}"
        begins = self._prerequisites.begins(job)
        if job.hard_deadline and job.deadline is not None:
            left = self._future.second(job.deadline) - begins
            if self._future.fastest(job) > left:
                return "it cannot meet its hard deadline any more"
        if begins > max(0, promised):
            return f"may not start before {clock(self._future.moment(begins), now)}"
        return ""

    def _of_its_nodes(self, job: Job, promise: Promise) -> str:
        """Nodes and GPUs of the promise that no job may start on."""
        for replica in promise.replicas:
            node = self._future.nodes.get(replica.node)
            if node is None or replica.node in self._future.target.removed:
                return f"node {replica.node} is gone"
            for closed, text in (
                (not node.ready, "is not ready"),
                (node.cordoned, "is cordoned"),
                (node.drain, "is to be drained"),
            ):
                if closed:
                    return f"node {node.name} {text}"
            gpus = node.gpus.by_index if node.gpus else {}
            healthy = {index for index, gpu in gpus.items() if gpu.healthy}
            # Which of a node's whole GPUs a job gets is settled when it starts.
            if job.request.gpus and len(healthy) >= len(replica.gpus):
                continue
            if lost := sorted({held.index for held in replica.gpus} - healthy):
                return f"GPU {lost[0]} of node {node.name} is {'unhealthy' if lost[0] in gpus else 'gone'}"
        return ""

    def _of_its_places(self, job: Job, promise: Promise) -> str:
        """Jobs that are expected to run on its places for longer, and windows that close its nodes."""
        future, now = self._future, self._future.snapshot.taken_at
        promised = max(0, future.second(promise.start))
        nodes = sorted({replica.node for replica in promise.replicas})
        staying = [
            (-stay.end, stay.job.name, name, stay)
            for name in nodes
            for stay in future.on_node.get(name, ())
            if stay.job.running is not None and stay.end > promised
        ]
        colliding = [
            each
            for each in staying
            if not job.request.needs_gpu
            or overlap(promise.replicas, each[3].replicas)
            or self._is_full(each[2], promise, [stay for _, _, _, stay in staying])
        ]
        if colliding:
            last, other, node, _ = min(colliding, key=lambda each: each[:3])
            return f"{other} on {node} is expected to run until {clock(future.moment(-last), now)}"
        seconds = future.durations.seconds(job, future.gpu_model(job, promise.replicas))
        for name in nodes:
            if (window := future.windows.bars(job, name, promised, seconds)) is not None:
                begins, ends = (clock(future.moment(each), now) for each in (window.begins, window.ends))
                return f"{window_text(window, future)} from {begins} to {ends}"
        return ""

    def _is_full(self, name: str, promise: Promise, staying: list[Stay]) -> bool:
        """True if a node has too few GPUs for a promise beside those who stay there."""
        node = self._future.nodes.get(name)
        if node is None or node.gpus is None:
            return False
        held = [
            replica.quota_milli
            for replicas in (promise.replicas, *(stay.replicas for stay in staying))
            for replica in replicas
            if replica.node == name
        ]
        return sum(held) > MILLI * sum(gpu.healthy for gpu in node.gpus.by_index.values())

    def _of_quota(self, job: Job) -> str:
        """A limit that the job alone would break."""
        if job.promise is None:
            return ""
        model = self._future.gpu_model(job, job.promise.replicas)
        needed = sum(replica.quota_milli for replica in job.promise.replicas)
        room = QuotaRoom(self._future.snapshot, self._future.target.placements)
        found = room.alone(job.queue, needed, (model,) if model else ()).shortage
        return f"queue {found.queue} may hold no more so much" if found else ""
