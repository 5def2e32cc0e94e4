"""
Excerpts: what a large plan file says about one job, read in a fraction of the time that the whole takes.

Beside a large plan file lies the hash of its bytes. If it holds, the bytes are those that gpuplan wrote: each
entry of a long list is a line of its own, and only the lines about the job have to be parsed. Otherwise there
is no excerpt, and the file has to be read whole, with all its checks.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.base import Noun
from gpuplan.models.errors import BadInputError
from gpuplan.models.placement import Placement
from gpuplan.models.plan.actions import Action, Grow, JobAction, Keep, Migrate, Release, Shrink, Start
from gpuplan.models.plan.plan import DeadlineOutlook, PlannedStart, Waiting
from gpuplan.models.units import Name, Timestamp
from gpuplan.planner.io.atomic_write import has_hash
from gpuplan.planner.plan_file.plan_file import plan_in, unpacked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gpuplan.models.plan.plan import Plan

_SUBMITTED: Final = re.compile(rb'"submitted_at": "([^"]+)"')
_TAKES_FROM: Final = ("takes_the_place_of", "makes_room_for")
"""Numbers of a reason with the names of other jobs; the actions of these belong to the excerpt."""
_BY_JOB: Final = ("placements", "waiting", "planned", "deadlines")
"""Lists of a plan with at most one entry for each job."""
_CHANGES_OF_NODES: Final = ("scale_up", "scale_down", "uncordon")
"""Actions that the target of a plan depends on."""
_PREFIX: Final = "job/"
_PLACED: Final = (Keep, Start, Grow, Shrink, Migrate)
"""Actions of jobs that have places once the plan is applied."""


@dataclass(frozen=True)
class Excerpt:
    """
    A plan without the entries of other jobs, and with only the nodes of the job.

    Its actions are those of the job, those of the jobs that its reason names, and those that add or remove
    nodes. Snapshot and policy are whole except for jobs and nodes.
    """

    plan: Plan
    job: str
    first_submitted: datetime
    """The earliest submission among all jobs of the plan."""

    @property
    def suffices_to_explain(self) -> bool:
        """
        True if an explanation of the job depends on nothing that is left out.

        It does depend on more for jobs without places, with a deadline, with dependencies, and for a start
        while nodes may be held for a starving job.
        """
        known = self.plan.snapshot.job_by_name[self.job]
        actions = [each for each in self.plan.actions if isinstance(each, JobAction) and each.job == self.job]
        if len(actions) != 1 or not isinstance(actions[0], _PLACED):
            return False
        if known.deadline is not None or known.depends_on or self.plan.waiting:
            return False
        starving = self.plan.policy.horizon.backfill.starving
        waited = self.plan.snapshot.taken_at - self.first_submitted
        return known.running is not None or starving is None or waited < timedelta(seconds=starving)


def read_excerpt(path: str | Path, name: str) -> Excerpt | None:
    """
    What a plan file says about a job, `x` or `job/x`; None if the file has to be read whole for that.

    So it is if there is no hash beside the file, if the hash is not that of the file, or if the plan has no
    job of that name.
    """
    with suppress(OSError, BadInputError):
        content = Path(path).read_bytes()
        if has_hash(path, content):
            return _PlanText(unpacked(content, str(path))).excerpt(name, str(path))
    return None


class _PlanText:
    """The text of a plan file as `save_plan` lays it out."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        snapshot = self._span(b'\n  "snapshot": {\n', b"\n  }", 0, len(text))
        cluster = self._span(b'\n    "cluster": {\n', b"\n    }", *snapshot)
        self._lists = {
            name: self._span(b'\n  "%s": [\n' % name.encode(), b"\n  ]", 0, len(text))
            for name in ("actions", "nodes", *_BY_JOB)
        }
        self._lists |= {
            "snapshot jobs": self._span(b'\n    "jobs": [\n', b"\n    ]", *snapshot),
            "snapshot nodes": self._span(b'\n      "nodes": [\n', b"\n      ]", *cluster),
        }

    def _span(self, head: bytes, end: bytes, start: int, stop: int) -> tuple[int, int]:
        """Where the lines of a list or object are; an empty span if it is not there."""
        # The newline before the first line of a span counts: a head or an end may be that line.
        found = self._text.find(head, max(0, start - 1), stop)
        if found < 0:
            return start, start
        begin = found + len(head)
        return begin, self._text.find(end, begin - 1, stop)

    def excerpt(self, name: str, place: str) -> Excerpt | None:
        """The excerpt about a job; `place` is the path for messages."""
        job, known = next(
            (
                (each, found)
                for each in dict.fromkeys((name, name.removeprefix(_PREFIX)))
                if (found := self._entries("snapshot jobs", "name", [each]))
            ),
            ("", {}),
        )
        if not known:
            return None
        own = self._entries("actions", "job", [job])
        numbers = [action["reason"]["numbers"].get(key, "") for action in own.values() for key in _TAKES_FROM]
        others = {other for each in numbers for other in str(each).split(", ") if other}
        kept = {each: self._entries(each, "job", [job]) for each in _BY_JOB}
        places = [*known.values(), *own.values(), *kept["placements"].values(), *kept["planned"].values()]
        kept["actions"] = (
            own
            | self._entries("actions", "job", sorted(others - {job}))
            | self._entries("actions", "type", _CHANGES_OF_NODES)
        )
        kept["nodes"] = {}
        kept["snapshot jobs"] = known
        # A node of the job's name, too: the name alone is then ambiguous.
        kept["snapshot nodes"] = self._entries(
            "snapshot nodes", "name", sorted({name, job, *_nodes_of(places)})
        )
        plan = plan_in(json.loads(b"".join(self._with(kept))), place)
        first = min(_SUBMITTED.findall(self._text, *self._lists["snapshot jobs"]))
        return Excerpt(plan, job, datetime.fromisoformat(first.decode()))

    def _entries(self, name: str, key: str, values: Iterable[str]) -> dict[int, dict[str, Any]]:
        """The entries of a list that have one of these values of a key, by position."""
        found = {}
        for value in values:
            wanted = b"%s: %s" % (_encoded(key), _encoded(value))
            begin, end = self._lists[name]
            while (at := self._text.find(wanted, begin, end)) >= 0:
                first = self._text.rfind(b"\n", 0, at) + 1
                begin = self._text.find(b"\n", at, end)
                begin = end if begin < 0 else begin
                entry = json.loads(self._text[first:begin].rstrip(b","))
                # What was found may also be deeper in the entry, as the job of a precondition.
                if entry.get(key) == value:
                    found[first] = entry
        return found

    def _with(self, kept: Mapping[str, Mapping[int, dict[str, Any]]]) -> Iterator[bytes]:
        """The text with these entries of the long lists alone."""
        at = 0
        for name, (begin, end) in sorted(self._lists.items(), key=lambda each: each[1]):
            if begin < end:
                yield self._text[at:begin]
                yield b",\n".join(_encoded(entry) for _, entry in sorted(kept[name].items()))
                at = end
        yield self._text[at:]


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _nodes_of(value: Any) -> Iterator[str]:
    """The names of all nodes on which replicas in a document are."""
    if isinstance(value, dict):
        if isinstance(node := value.get("node"), str):
            yield node
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _nodes_of(each)


# What a plan says about one job, as data.


class JobEntries(Noun):
    """All entries of a plan about one job."""

    plan_id: str
    epoch: Timestamp
    job: Name
    actions: tuple[Action, ...]
    """What is done with it, with preconditions and reasons; the release of lost places comes first."""
    placement: Placement | None
    """Its places after the plan."""
    waiting: Waiting | None
    """Why it waits after the plan, and until when."""
    planned: PlannedStart | None
    """Its start in a later slot."""
    deadline: DeadlineOutlook | None


def job_entries(plan: Plan, name: str) -> JobEntries:
    """What a plan, whole or in excerpt, says about a job of its snapshot."""
    return JobEntries(
        plan_id=plan.plan_id,
        epoch=plan.epoch,
        job=name,
        actions=tuple(
            each for each in plan.actions if isinstance(each, Release | JobAction) and each.job == name
        ),
        placement=next((each for each in plan.placements if each.job == name), None),
        waiting=next((each for each in plan.waiting if each.job == name), None),
        planned=next((each for each in plan.planned if each.job == name), None),
        deadline=next((each for each in plan.deadlines if each.job == name), None),
    )
