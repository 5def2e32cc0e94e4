"""The document of a plan file, whole and by one dump; the product writes it in pieces."""

from __future__ import annotations

from gpuplan.models.base import fingerprint_of


def plan_document(plan):
    """The plan as the JSON object of docs/plan-format.md, with its checksum."""
    document = plan.model_dump(mode="json", by_alias=True)
    document |= {"snapshot": plan.snapshot.document(), "policy": plan.policy.document()}
    for action in document["actions"]:
        action["reason"] = action.pop("reason")
    return document | {"checksum": fingerprint_of(document)}
