"""JSON Schema of each document that users and programs write or read, and its reference page as Markdown."""

from __future__ import annotations

import ast
import inspect
import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from gpuplan.models.base import Noun
from gpuplan.models.plan.plan import Plan
from gpuplan.models.policy.policy import Policy
from gpuplan.models.snapshot import Snapshot
from gpuplan.planner.whatif.patch.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic_core import core_schema


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
_KINDS: Final = {"type": "type of action", "kind": "type of precondition", "change": "kind of change"}


class _DocumentSchema(GenerateJsonSchema):
    """Schemas of the documents' form, where a model has other units or is stricter about keys."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        made = super().default_schema(schema)
        inner: Any = schema["schema"]
        # A further bound on a type wraps the schema that has its serializer.
        # So does the choice of `null`.
        while "serialization" not in inner and inner["type"] in ("function-after", "nullable"):
            inner = inner["schema"]
        printer = inner.get("serialization", {})
        if made.get("default") is not None and printer.get("type") == "function-plain":
            made["default"] = printer["function"](schema["default"])
        return made

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        made = super().dict_schema(schema)
        return made | {"additionalProperties": False} if "patternProperties" in made else made

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        # Pydantic can read the docstrings of fields too (`use_attribute_docstrings`), but as each class is
        # made: every command would parse the sources of all models again, a fifth of a small plan's CPU time.
        made = super().model_schema(schema)
        names = {field.alias or name: name for name, field in schema["cls"].model_fields.items()}
        texts = field_docstrings(schema["cls"])
        for shown, field in made.get("properties", {}).items():
            if names[shown] in texts:
                field.setdefault("description", texts[names[shown]])
        return made


def field_docstrings(model: type) -> dict[str, str]:
    """The docstring below each field of a model and of the models that it extends."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__[: model.__mro__.index(Noun)]):
        body = ast.parse(inspect.getsource(each)).body[0]
        for field, text in pairwise(body.body if isinstance(body, ast.ClassDef) else ()):
            match field, text:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(docstring))),
                ):
                    found[name] = inspect.cleandoc(docstring)
    return found


def schema(kind: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one of `KINDS`."""
    made = _NOUNS[kind].model_json_schema(schema_generator=_DocumentSchema)
    definitions = made["$defs"]
    _bound_from_below(definitions)
    _describe_kinds(definitions)
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


def _describe_kinds(definitions: dict[str, Any]) -> None:
    """Describe the field that tells the kinds of an entry apart, in every kind."""
    for part in definitions.values():
        for name, what in _KINDS.items():
            field = part.get("properties", {}).get(name, {})
            if "const" in field:
                field.setdefault("description", f"The {what}: `{field['const']}`.")


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


# Reference pages: Markdown tables of the fields of a document, generated from its JSON Schema.


_HEAD: Final = ("| field | type | default | meaning |", "|---|---|---|---|")
_DEFINITIONS: Final = "#/$defs/"
_NAMES: Final = {"number": "number", "integer": "integer", "boolean": "true or false", "null": "null"}


def reference_page(schema: Mapping[str, Any]) -> str:
    """Markdown of a JSON Schema: the document first, then its component objects by name."""
    return "\n".join(_lines(schema)) + "\n"


def _lines(schema: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"# {schema['title']}", "", schema["description"], "")
    kind = schema["title"].removeprefix("gpuplan ")
    yield f"Made by `gpuplan schema {kind} --markdown` from the data model; `gpuplan schema {kind}` is the"
    yield from ("JSON Schema for editors and validators.", "")
    yield from _table(schema)
    for name, part in sorted(schema["$defs"].items()):
        yield from ("", f"## {name}", "")
        yield from part.get("description", "").splitlines()
        yield ""
        if "enum" in part:
            yield "One of " + ", ".join(f"`{value}`" for value in part["enum"]) + "."
        else:
            yield from _table(part)


def _table(part: Mapping[str, Any]) -> Iterator[str]:
    required = part.get("required", ())
    yield from _HEAD
    for name, field in part["properties"].items():
        cells = (f"`{name}`", _type(field), _default(name, field, required), field.get("description", ""))
        yield "| " + " | ".join(" ".join(cell.split()).replace("|", r"\|") for cell in cells) + " |"


def _default(name: str, field: Mapping[str, Any], required: tuple[str, ...]) -> str:
    if "default" not in field:
        return "required" if name in required else ""
    value = field["default"]
    return "absent" if value is None else f"`{json.dumps(value, ensure_ascii=False)}`"


def _type(field: Mapping[str, Any]) -> str:
    """A type in words, with its range or an example."""
    if "$ref" in field:
        name = field["$ref"].removeprefix(_DEFINITIONS)
        return f"[{name}](#{name.lower()})"
    if "const" in field:
        return f"`{json.dumps(field['const'])}`"
    for several in ("anyOf", "oneOf"):
        if several in field:
            # "null" is how an absent field is written out.
            parts = (_type(part) for part in field[several] if part.get("type") != "null")
            return " or ".join(dict.fromkeys(parts))
    match field.get("type"):
        case "array":
            items = field.get("items") or {"anyOf": field.get("prefixItems", [{}])}
            return f"list of {_type(items)}"
        case "object":
            values = [*field.get("patternProperties", {}).values(), field.get("additionalProperties")]
            inner = next((value for value in values if isinstance(value, dict)), None)
            return "object" if inner is None else f"object of {_type(inner)}"
        case "string":
            return _text(field)
        case other:
            return _NAMES.get(str(other), "any") + _range(field)


def _text(field: Mapping[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if field.get("format") == "date-time":
        return "time such as `2026-11-20T12:00:00Z`"
    examples = field.get("examples", ())
    return "text" + (" such as " + " or ".join(f"`{example}`" for example in examples) if examples else "")


def _range(field: Mapping[str, Any]) -> str:
    bounds = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    stated = [f"{sign} {field[name]:,}" for name, sign in bounds.items() if name in field]
    return f" {', '.join(stated)}" if stated else ""
