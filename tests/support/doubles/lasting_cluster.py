"""A cluster on which actions last, calls may fail, and time passes while an apply waits."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuplan.models.errors import PlannerError
from gpuplan.planner.executors.interface import ActionPhase, ActionProgress, UnreachableError
from tests.support.doubles.wrapped_cluster import Wrapped


class VirtualClock:
    """Time that passes only while an apply sleeps."""

    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += max(0.001, seconds)


@dataclass
class Request:
    """What the cluster was asked for; it stays when the apply is killed."""

    action: object
    ends: float
    failure: str = ""
    retryable: bool = False


@dataclass
class LastingCluster(Wrapped):
    """
    The simulated cluster, with actions that take time.

    `lasts` gives the seconds of an action. `trouble(call, name)` is asked at each call, with the action's id
    or the key; it may raise, or return "lost" to do the call and give no answer, or a reason for a failure.
    """

    inner: object
    clock: VirtualClock
    lasts: object = lambda _: 0.0
    trouble: object = lambda *_: ""
    requests: dict = field(default_factory=dict)
    stopping: dict = field(default_factory=dict)
    """When a start that is taken back is over, by key; it goes on if the apply is killed."""
    most_at_once: int = 0
    shows_early: bool = False
    """The effect of an action is in snapshots from its begin on, as while a job starts."""

    def begin(self, action, key):
        trouble = self.trouble("begin", action.id)
        known = self.requests.get(key)
        if known is None or known.failure:
            failure = "" if trouble == "lost" else trouble
            ends = self.clock.now() + self.lasts(action)
            self.requests[key] = Request(action, ends, failure, retryable=bool(failure))
            if self.shows_early and not failure:
                self.inner.begin(action, key)
        self.most_at_once = max(self.most_at_once, self._under_way())
        if trouble == "lost":
            raise UnreachableError("the cluster does not answer.")
        return self._progress(key)

    def observe(self, keys):
        if self.trouble("observe", "") == "lost":
            raise UnreachableError("the cluster does not answer.")
        return {key: self._progress(key) for key in keys}

    def reserve(self, action, key):
        trouble = self.trouble("reserve", action.id)
        if key in self.stopping and self.clock.now() < self.stopping[key]:
            return ActionProgress(ActionPhase.ASKED, "it ends")
        self._stop_what_is_due(key)
        if key in self.requests:
            return self._progress(key)
        if trouble and trouble != "lost":
            return ActionProgress(ActionPhase.FAILED, trouble, retryable=True)
        progress = self.inner.reserve(action, key)
        if trouble == "lost":
            raise UnreachableError("the cluster does not answer.")
        return progress

    def abort(self, key, reason):
        trouble = self.trouble("abort", key)
        if key not in self.stopping:
            runs = self.inner.observe([key])[key].phase is ActionPhase.LANDED
            self.stopping[key] = self.clock.now() + (self.lasts(key) if runs else 0)
            self.requests.pop(key, None)
        if trouble == "lost":
            raise UnreachableError("the cluster does not answer.")

    def _stop_what_is_due(self, key):
        if key in self.stopping and self.clock.now() >= self.stopping[key]:
            del self.stopping[key]
            self.inner.abort(key, "")

    def undo(self, key):
        if self.trouble("undo", key) == "lost":
            raise UnreachableError("the cluster does not answer.")
        if self._progress(key).phase is ActionPhase.UNDER_WAY:
            del self.requests[key]

    def keep_promises(self, promises, key):
        trouble = self.trouble("promises", key)
        if trouble == "unreached":
            raise UnreachableError("the cluster does not answer.")
        self.inner.keep_promises(promises, key)
        if trouble == "lost":
            raise UnreachableError("the cluster does not answer.")

    def _progress(self, key):
        self._stop_what_is_due(key)
        if key in self.stopping:
            return ActionProgress(ActionPhase.UNDER_WAY, "it ends")
        request = self.requests.get(key)
        if request is not None and self.clock.now() < request.ends:
            return ActionProgress(ActionPhase.UNDER_WAY, "it lasts")
        landed = self.inner.observe([key])[key]
        if landed.phase is ActionPhase.LANDED or request is None:
            return landed
        if request.failure:
            return ActionProgress(ActionPhase.FAILED, request.failure, request.retryable)
        try:
            return self.inner.begin(request.action, key)
        except PlannerError as error:
            return ActionProgress(ActionPhase.FAILED, str(error))

    def _under_way(self):
        return sum(self._progress(key).phase is ActionPhase.UNDER_WAY for key in tuple(self.requests))


def failing(call, name, why):
    """Trouble at one call, each time."""
    return lambda *asked: why if asked == (call, name) else ""


def losing(call, number):
    """No answer to the first calls of a kind."""
    asked = iter(range(number))
    return lambda here, _: "lost" if here == call and next(asked, None) is not None else ""
