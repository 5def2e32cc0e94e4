"""What differs between two policies, knob by knob."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.policy.policy import Policy


def changed_knobs(old: Policy, new: Policy) -> Iterator[tuple[str, Any, Any]]:
    """
    (path, before, after) of every knob that differs, by path, such as `disruption.preempt`.

    Values are as in the document, None where a policy does not have the knob; a list is one knob.
    """
    before, after = (dict(_knobs(policy.model_dump(mode="json"))) for policy in (old, new))
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path):
            yield path, before.get(path), after.get(path)


def _knobs(document: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _knobs(value, f"{path}{key}.")
        else:
            yield f"{path}{key}", value
