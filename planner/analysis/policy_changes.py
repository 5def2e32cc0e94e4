"""Settings that differ between two policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuplan.models.policy.policy import Policy


def changed_knobs(old: Policy, new: Policy) -> Iterator[tuple[str, Any, Any]]:
    """
    Yield (path, before, after) of every setting that differs, by path, such as `disruption.preempt`.

    Values are as in the document; None if a policy does not have the setting. A list is one setting.
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
