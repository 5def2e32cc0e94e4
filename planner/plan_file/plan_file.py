"""
plan.json: written atomically, and refused if it was changed after that.

The checksum is over the file's own document, so it covers keys that this version does not know. White space
does not count: a plan with other indentation is the same plan.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydantic import ValidationError

from gpuplan.models.base import (
    canonical_json,
    canonical_list,
    canonical_object,
    fingerprint_of,
    hash_of,
)
from gpuplan.models.errors import BadInputError, InputProblem, TamperedError
from gpuplan.models.json_frame import CANONICAL, LINES, job_texts
from gpuplan.models.plan.plan import PLAN_FORMAT, Plan, plan_content
from gpuplan.models.units import print_timestamp
from gpuplan.planner.io.atomic_write import remove_hash, write_atomically, write_with_hash
from gpuplan.planner.plan_file.integrity import contradictions
from gpuplan.planner.plan_file.part_texts import LONG_LISTS, part_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pydantic_core import ErrorDetails


_STDIN: Final = "-"
_MAJOR, _MINOR = (int(part) for part in PLAN_FORMAT.split("."))
# 64 bits: of a million plans, any two have the same id with a probability of 3 in 100 million.
_ID_LENGTH: Final = 16
_UID_LENGTH: Final = 8
"""Length of the part after the id."""
_NAMED_AT_MOST: Final = 10
_COMPRESSED: Final = ".gz"
GZIP_MAGIC: Final = b"\x1f\x8b"
"""Its first bytes (RFC 1952)."""
_GZIP_BITS: Final = 31
"""zlib's number for the largest window, and gzip around it."""
_LEVEL: Final = 3
"""Of compression: an eighteenth of the size with 100,000 GPUs, in a fifth of the time that the text takes."""
MANY_ACTIONS: Final = 2_000
"""From so many on, reading a plan whole takes more than half a second, and a hash is written beside it."""
_encoded: Final = LINES.encode
"""Encodes a value as JSON on one line."""
_MAKE_A_PLAN: Final = "Make one with `gpuplan plan SOURCE -o plan.json`."


def with_id(plan: Plan) -> Plan:
    """The plan with the id computed from its content; replaces any id that it has."""
    texts = {name: canonical_list(entries) for name, entries in part_texts(plan, CANONICAL).items()}
    content = canonical_object(plan_content(_hollow(plan)), texts)
    return plan.model_copy(update={"plan_id": hash_of(content)[:_ID_LENGTH]})


def uid_of(plan: Plan) -> str:
    """
    Unique id of one plan file, used by apply: the plan's id with a hash of its creation time and timings.

    All readers of one file get the same uid. An equal plan that is made again has the same id, another uid.
    """
    solution = plan.solution
    made = [print_timestamp(plan.created_at), solution.seconds, solution.phases]
    return f"{plan.plan_id}-{fingerprint_of(made)[:_UID_LENGTH]}"


def plan_file_text(plan: Plan) -> str:
    """Text of the plan file: JSON with one line for each action, placement, node and job."""
    return "".join(plan_file_pieces(plan))


def plan_file_pieces(plan: Plan) -> Iterator[str]:
    """The text of the plan file in pieces: the whole of a large plan takes more memory than the plan."""
    # The snapshot is most of the file, so its default values are left out, as in hand-written documents.
    snapshot = plan.snapshot
    cluster = snapshot.cluster.model_copy(update={"nodes": ()})
    stated = snapshot.model_copy(update={"jobs": (), "cluster": cluster}).document()
    if snapshot.cluster.nodes:
        stated["cluster"]["nodes"] = _Lines(_encoded(node.document()) for node in snapshot.cluster.nodes)
    if snapshot.jobs:
        stated["jobs"] = _Lines(job_texts(snapshot.jobs, LINES))
    document = _hollow(plan)
    texts = part_texts(plan, LINES)
    document |= {name: _Lines(texts[name]) for name in LONG_LISTS if getattr(plan, name)}
    document |= {"snapshot": stated, "policy": plan.policy.document(), "checksum": _checksum_of(plan)}
    yield from _layout(document)
    yield "\n"


def save_plan(plan: Plan, path: str | Path) -> None:
    """
    Write the plan file atomically: a reader sees the old file or the new one.

    A path that ends in `.gz` gets the same text compressed, less than a tenth of its size. Beside a large
    plan its hash is written (`hash_path`), so that questions about one job need not read it whole; the hash
    of a plan that was there before is removed.
    """
    pieces = map(str.encode, plan_file_pieces(plan))
    compressed = Path(path).suffix.lower() == _COMPRESSED
    write = write_with_hash if len(plan.actions) >= MANY_ACTIONS else write_atomically
    remove_hash(path)
    write(path, _compressed(pieces) if compressed else pieces, private=True)


def _compressed(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The gzip format, without a time: the same plan gives the same file."""
    packer = zlib.compressobj(_LEVEL, wbits=_GZIP_BITS)
    yield from filter(None, map(packer.compress, pieces))
    yield packer.flush()


def load_plan(path: str | Path) -> Plan:
    """
    Read a plan file; `-` is standard input.

    Raises
    ------
    BadInputError
        The file does not exist, is not a plan, or has another major format version.
    TamperedError
        The file was changed after gpuplan wrote it.
    """
    return load_with_checksum(path)[0]


def load_with_checksum(path: str | Path) -> tuple[Plan, str]:
    """Read a plan file as `load_plan` does; also returns its checksum, which covers the whole content."""
    place = "standard input" if str(path) == _STDIN else str(path)
    document = _parse(unpacked(_read(path, place), place), place)
    minor = _minor_version(document, place)
    texts = _canonical_members(document)
    _refuse_edited(document, texts, place, minor)
    plan = plan_in(document, place)
    _refuse_forged(plan, texts, place)
    return plan, str(document["checksum"])


def _hollow(plan: Plan) -> dict[str, Any]:
    """The plan's document without snapshot, policy and the entries of the long lists."""
    hollow = plan.model_copy(update=dict.fromkeys(LONG_LISTS, ()))
    return hollow.model_dump(mode="json", by_alias=True, exclude={"snapshot", "policy"})


def _checksum_of(plan: Plan) -> str:
    """The checksum of the plan's document, from texts that are known since its id was computed."""
    texts: dict[str, Iterable[str]] = {
        name: canonical_list(each) for name, each in part_texts(plan, CANONICAL).items()
    }
    texts |= {"snapshot": plan.snapshot.canonical_pieces(), "policy": plan.policy.canonical_pieces()}
    return hash_of(canonical_object(_hollow(plan), texts))


def _canonical_members(document: dict[str, Any]) -> dict[str, str]:
    """Canonical JSON of each member, which several hashes need; empty if one has none."""
    try:
        return {key: canonical_json(value) for key, value in document.items() if key != "checksum"}
    except (TypeError, ValueError, RecursionError):  # a number that is out of range, or nested too deep
        return {}


def _hash_of_members(texts: dict[str, str]) -> str:
    """Hash of the document with these members."""
    return hash_of(canonical_object({}, {key: (text,) for key, text in texts.items()}))


class _Lines:
    """Texts of documents that are written one by one; at least one."""

    def __init__(self, entries: Iterable[str]) -> None:
        self.entries = entries


def _layout(value: Any, indent: str = "") -> Iterator[str]:
    """JSON with one line for each entry of a list of objects, so that two plans compare line by line."""
    deeper = indent + "  "
    if isinstance(value, dict) and (not indent or _is_tall(value)):
        before = "{\n"
        for key, entry in value.items():
            yield f"{before}{deeper}{json.dumps(key)}: "
            yield from _layout(entry, deeper)
            before = ",\n"
        yield f"\n{indent}}}"
    elif _is_list_of_objects(value):
        before = "[\n"
        for text in value.entries if isinstance(value, _Lines) else map(_encoded, value):
            yield f"{before}{deeper}{text}"
            before = ",\n"
        yield f"\n{indent}]"
    else:
        yield _encoded(value)


def _is_list_of_objects(value: Any) -> bool:
    return isinstance(value, _Lines) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], dict)
    )


def _is_tall(value: Any) -> bool:
    """True for a list of objects, and for an object that holds one at any depth."""
    return _is_list_of_objects(value) or (isinstance(value, dict) and any(map(_is_tall, value.values())))


def _read(path: str | Path, place: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(path) == _STDIN else Path(path).read_bytes()
    except OSError as error:
        _refuse(place, f"the plan cannot be read: {error.strerror}.")


def unpacked(content: bytes, place: str) -> bytes:
    """The text of a plan file, which may be compressed."""
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        _refuse(place, f"expected a whole file in the gzip format, found a damaged one: {error}.")


def _parse(content: bytes, place: str) -> dict[str, Any]:
    try:
        document = json.loads(content.decode(), parse_constant=_no_constant)
    except RecursionError:
        _refuse(place, "expected a plan, found JSON nested too deep for one.")
    except json.JSONDecodeError as error:
        _refuse(
            f"{place}:{error.lineno}", f"expected JSON, found an error at column {error.colno}: {error.msg}."
        )
    except UnicodeDecodeError as error:
        _refuse(
            place, f"expected JSON in UTF-8, found byte 0x{content[error.start]:02x} at offset {error.start}."
        )
    except ValueError as error:
        _refuse(place, f"expected JSON, found {error}.")
    if not isinstance(document, dict):
        _refuse(place, f"expected a plan, one JSON object; found {_kind(document)}.")
    if not {"plan_id", "actions", "checksum"} & document.keys():
        keys = ", ".join(sorted(document)[:8]) or "no keys"
        _refuse(place, f"expected a plan with plan_id, actions and checksum; found an object with {keys}.")
    return document


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text}, which JSON does not have")


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def _minor_version(document: dict[str, Any], place: str) -> int:
    """The minor format version; another major version is refused."""
    found = document.get("format_version")
    parts = found.split(".") if isinstance(found, str) else []
    if (
        len(parts) != 2
        or not all(part.isascii() and part.isdigit() for part in parts)
        or int(parts[0]) != _MAJOR
    ):
        _refuse(
            place,
            f"expected format_version {_MAJOR}.x, found {found!r}. This gpuplan reads every plan of format "
            f"{_MAJOR} and writes {PLAN_FORMAT}.",
        )
    return int(parts[1])


def _refuse_edited(document: dict[str, Any], texts: dict[str, str], place: str, minor: int) -> None:
    found = document.get("checksum")
    try:
        content = plan_content(document)
        solution = canonical_json(content["solution"])
        expected = _hash_of_members(texts) if texts else ""
        members = {key: text for key, text in texts.items() if key in content}
        plan_id = _hash_of_members(members | {"solution": solution})[:_ID_LENGTH]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        # The solution is not an object, or a text is not Unicode.
        expected, plan_id = "", ""
    if found != expected or not expected:
        raise TamperedError(
            f"{place}: the plan was changed after it was made: its checksum is {_short(found)}, "
            f"its content has {_short(expected)}.\n"
            "Plans are not edited: change the snapshot or the policy and run `gpuplan plan` again."
        )
    # The id of a newer minor version may exclude timing fields that this version does not know.
    if minor <= _MINOR and document.get("plan_id") != plan_id:
        raise TamperedError(
            f"{place}: the plan does not carry its own id: found {_short(document.get('plan_id'))}, "
            f"expected {plan_id}.\n"
            "Plans are not edited: change the snapshot or the policy and run `gpuplan plan` again."
        )


def _refuse_forged(plan: Plan, texts: dict[str, str], place: str) -> None:
    """Refuse a plan with inconsistent parts; an editor can recompute the checksums, so these prove little."""
    found = [
        f"the {part} is not the one the plan was made from"
        for part, fingerprint in (("snapshot", plan.base.snapshot), ("policy", plan.base.policy))
        if hash_of((texts[part],)) != fingerprint
    ]
    found += contradictions(plan)
    if found:
        listed = "".join(f"\n  {contradiction}" for contradiction in found[:_NAMED_AT_MOST])
        more = f"\n  … and {len(found) - _NAMED_AT_MOST} more" if len(found) > _NAMED_AT_MOST else ""
        raise TamperedError(
            f"{place}: the plan contradicts itself:{listed}{more}\n"
            "Plans are not edited: change the snapshot or the policy and run `gpuplan plan` again."
        )


def _short(value: object) -> str:
    if value in (None, ""):
        return "missing"
    text = str(value)
    return text if len(text) <= _ID_LENGTH else f"{text[:_ID_LENGTH]}…"


def plan_in(document: dict[str, Any], place: str) -> Plan:
    """The plan in a document of this major version; unknown keys are ignored."""
    readable = document | {"format_version": PLAN_FORMAT}
    for part in ("snapshot", "policy"):
        if isinstance(inner := document.get(part), dict):
            # Without a number each part gets this version's own, as the plan itself does.
            readable[part] = {key: value for key, value in inner.items() if key != "format_version"}
    try:
        return Plan.model_validate(readable, extra="ignore")
    except ValidationError as error:
        raise BadInputError(
            (
                *(InputProblem(place, _problem(details)) for details in error.errors(include_url=False)),
                InputProblem(place, f"the plan cannot be used. {_MAKE_A_PLAN}"),
            )
        ) from None


def _problem(details: ErrorDetails) -> str:
    value = repr(details["input"])
    found = value if len(value) <= 60 else f"{value[:60]}…"
    return f"{'.'.join(map(str, details['loc']))}: {details['msg']}, found {found}."


def _refuse(place: str, message: str) -> NoReturn:
    raise BadInputError((InputProblem(place, f"{message}\n  {_MAKE_A_PLAN}"),))
