"""
JSON of the entries of a plan's long lists, with all their fields.

Most entries are about jobs that start, run on or wait, and differ in names and places. Their texts are
composed from those of their parts, which occur elsewhere too. Whatever has another form is written whole.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.base import canonical_string
from gpuplan.models.json_frame import CANONICAL, JsonStyle
from gpuplan.models.placement import Placement, Replica
from gpuplan.models.plan.actions import Keep, Start, Wait
from gpuplan.models.plan.plan import Waiting
from gpuplan.models.plan.precondition import Free, JobWaits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.base import Noun
    from gpuplan.models.plan.actions import Action
    from gpuplan.models.plan.plan import Plan
    from gpuplan.models.plan.precondition import Precondition
    from gpuplan.models.plan.reason import Reason

LONG_LISTS: Final = ("actions", "placements", "nodes", "waiting")
"""Lists of a plan with an entry for each job or node."""

_FULL: Final = "full_text"
"""Name of the cached property of that name."""

_times_of: Final = attrgetter(
    "projected_start", "promised", "earlier_promise", "promise_changed", "waits_for", "remaining"
)
"""Fields that are empty for most pending jobs."""


def part_texts(plan: Plan, style: JsonStyle) -> dict[str, Iterator[str]]:
    """Texts of the entries of the long lists, by the name of the list; to be read while the plan exists."""
    texts = _PartTexts(style)
    return {
        "actions": map(texts.action, plan.actions),
        "placements": map(texts.placement, plan.placements),
        "nodes": map(texts.whole, plan.nodes),
        "waiting": map(texts.waiting, plan.waiting),
    }


class _PartTexts:
    """Texts of the parts of one plan in one style."""

    def __init__(self, style: JsonStyle) -> None:
        self._style = style
        self._frames: dict[Any, str] = {}
        self._known: dict[int, str] = {}
        """Texts of parts that may occur several times, by identity."""

    def action(self, action: Action) -> str:
        """An action; unless keys are sorted, its reason comes last: a reader sees first what it is for."""
        plain = not (action.preconditions or action.after_actions)
        match action:
            case Wait() if plain:
                return self._fill(Wait, action, self._named(action))
            case Keep() if plain and action.before is action.after:
                place = self.placement(action.before)
                return self._fill(Keep, action, self._named(action) | {"before": place, "after": place})
            case Start() if action.kill_at is None and not action.recovery:
                parts = {
                    "after": self.placement(action.after),
                    "after_actions": self._list(map(canonical_string, action.after_actions)),
                    "preconditions": self._list(map(self._precondition, action.preconditions)),
                }
                return self._fill(Start, action, self._named(action) | parts)
        return self.whole(action)

    def placement(self, placement: Placement) -> str:
        """A placement."""
        if (text := self._text_of(placement)) is None:
            replicas = self._list(map(self._replica, placement.replicas))
            parts = {"job": canonical_string(placement.job), "replicas": replicas}
            text = self._know(placement, self._fill((Placement, placement.slot), placement, parts))
        return text

    def waiting(self, waiting: Waiting) -> str:
        """A pending job."""
        if any(_times_of(waiting)):
            return self.whole(waiting)
        parts = {"job": canonical_string(waiting.job), "reason": self._shared(waiting.reason)}
        return self._fill(Waiting, waiting, parts)

    def whole(self, part: Noun) -> str:
        """A part of any form."""
        return part.full_text if self._sorted else self._style.encode(self._document(part))

    @property
    def _sorted(self) -> bool:
        """True for the texts that `full_text` has."""
        return self._style is CANONICAL

    def _named(self, action: Start | Keep | Wait) -> dict[str, str]:
        return {
            "id": canonical_string(action.id),
            "job": canonical_string(action.job),
            "reason": self._shared(action.reason),
        }

    def _replica(self, replica: Replica) -> str:
        if replica.resources:
            return self.whole(replica)
        amounts = replica.cpu_milli, replica.memory_mib, replica.disk_mib
        key = Replica, amounts, tuple(map(id, replica.gpus))
        return self._fill(key, replica, {"node": canonical_string(replica.node)})

    def _precondition(self, part: Precondition) -> str:
        match part:
            case JobWaits():
                names = canonical_string(part.job), canonical_string(part.job_fingerprint)
                return self._fill(JobWaits, part, dict(zip(("job", "job_fingerprint"), names, strict=True)))
            case Free() if not part.resources:
                key = Free, part.cpu_milli, part.memory_mib, part.disk_mib, tuple(map(id, part.gpus))
                return self._fill(key, part, {"node": canonical_string(part.node)})
        return self.whole(part)

    def _fill(self, key: Any, part: Noun, texts: dict[str, str]) -> str:
        """
        Text of a part with the texts of some of its members; all else is equal in parts with this key.

        Parts of GPUs are told apart by identity: they exist as long as the plan does.
        """
        if (frame := self._frames.get(key)) is None:
            frame = self._frames[key] = self._style.frame(self._document(part), texts)
        return frame % texts

    def _list(self, texts: Iterable[str]) -> str:
        return f"[{self._style.comma.join(texts)}]"

    def _shared(self, reason: Reason) -> str:
        text = self._text_of(reason)
        return self._know(reason, self.whole(reason)) if text is None else text

    def _text_of(self, part: Noun) -> str | None:
        """Text of a part if it is known; that of `full_text` stays with the part, for later plans."""
        return part.__dict__.get(_FULL) if self._sorted else self._known.get(id(part))

    def _know(self, part: Noun, text: str) -> str:
        if self._sorted:
            part.__dict__[_FULL] = text
        else:
            self._known[id(part)] = text
        return text

    def _document(self, part: Noun) -> dict[str, Any]:
        document = part.model_dump(mode="json", by_alias=True)
        if "type" in document:
            document["reason"] = document.pop("reason")
        return document
