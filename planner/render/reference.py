"""Reference pages: Markdown tables of the fields of a document, generated from its JSON Schema."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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
