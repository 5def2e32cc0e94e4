"""
JSON Schema of each document that users and programs write or read.

pydantic derives the schemas from the model classes. This module adds what pydantic cannot derive: the short
forms that models accept, defaults in the units of documents, and the checksum that only the plan file has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import GenerateJsonSchema

from gpuplan.models.plan.plan import Plan
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.whatif.patch.scenario import Scenario

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import core_schema

    from gpuplan.models.base import Noun

_NOUNS: Final[dict[str, type[Noun]]] = {
    "plan": Plan,
    "policy": Policy,
    "scenario": Scenario,
    "snapshot": Snapshot,
}

KINDS: Final = tuple(sorted(_NOUNS))
"""Documents that have a schema."""

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_NOTES: Final = ("title", "description", "default")


class _DocumentSchema(GenerateJsonSchema):
    """Schemas of the documents' form, where a model has other units or is stricter about keys."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        inner: Any = schema["schema"]
        # A further bound on a type wraps the schema that has its serializer.
        while "serialization" not in inner and inner["type"] == "function-after":
            inner = inner["schema"]
        printer = inner.get("serialization", {})
        if "default" in made and printer.get("type") == "function-plain":
            made["default"] = printer["function"](schema["default"])
        return made

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        return made | {"additionalProperties": False} if "patternProperties" in made else made


def schema(kind: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one of `KINDS`."""
    made = _NOUNS[kind].model_json_schema(schema_generator=_DocumentSchema)
    definitions = made["$defs"]
    _bound_from_below(definitions)
    if "Job" in definitions:
        _accept_short_forms_of_jobs(definitions)
    if kind == "snapshot":
        _accept_nodes_alone(definitions, made)
    if kind == "plan":
        _accept_nodes_alone(definitions, definitions["Snapshot"])
        made["properties"]["checksum"] = {
            "type": "string",
            "description": "SHA-256 (hex) of the canonical JSON of everything else in the file.",
        }
        made["required"].append("checksum")
    version = made["properties"]["format_version"]["const"]
    return {
        "$schema": _DIALECT,
        "$id": f"urn:gpuplan:schema:{kind}:{version}",
        **made,
        "title": f"gpuplan {kind}",
    }


def _bound_from_below(definitions: dict[str, Any]) -> None:
    """Add lower bounds of fields that pydantic loses because of the units of their types."""
    if "PoolPolicy" in definitions:
        at_least_a_second = definitions["Ageing"]["properties"]["step"]["anyOf"]
        definitions["PoolPolicy"]["properties"]["horizon"]["anyOf"] = at_least_a_second
    if "Overcommit" in definitions:
        for field in definitions["Overcommit"]["properties"].values():
            number, text = field["anyOf"]
            field["anyOf"] = [number | {"minimum": 1}, text]


def _accept_short_forms_of_jobs(definitions: dict[str, Any]) -> None:
    """Accept a number of replicas as a gang, and a list of GPU models as models of equal speed."""
    job = definitions["Job"]["properties"]
    _accept(job, "replicas", definitions["Gang"]["properties"]["min"])
    _accept(job, "gpu_models", {"type": "array", "items": _bare(job["name"])})


def _accept_nodes_alone(definitions: dict[str, Any], snapshot: dict[str, Any]) -> None:
    """Accept a list of nodes as a cluster."""
    _accept(snapshot["properties"], "cluster", definitions["Cluster"]["properties"]["nodes"])


def _accept(properties: dict[str, Any], name: str, short: dict[str, Any]) -> None:
    usual = properties[name]
    notes = {key: usual[key] for key in _NOTES if key in usual}
    properties[name] = {**notes, "anyOf": [_bare(usual), _bare(short)]}


def _bare(part: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if key not in _NOTES}
