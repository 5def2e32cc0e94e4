"""
Documents: the plain data of a YAML or JSON file, and the line of each entry.

Reading builds the data and nothing else. Lines are found in a second pass over the text, which only a file
with a problem needs.
"""

from __future__ import annotations

import codecs
import json
import math
import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import yaml

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.planner.sources.documents.tokens import (
    LONGEST_NUMBER,
    MAX_DEPTH,
    MOST_VALUES,
    SPLIT_IT,
    RefusedError,
    Token,
    TokenKind,
    lines_of,
    refuse,
    too_many_values,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuplan.models.validation.base import Location


STDIN: Final = "-"
_STDIN_PLACE: Final = "standard input"
YAML_SUFFIXES: Final = (".yaml", ".yml")
JSON_SUFFIX: Final = ".json"
LARGEST_BYTES: Final = 64 * 2**20
"""Bytes per file; a snapshot of 100,000 GPUs and as many jobs takes half of it."""

_CHECK_THE_PATH: Final = "  Check the path: expected a YAML or JSON file, or - for standard input."
_BYTE_ORDER_MARKS: Final = {
    codecs.BOM_UTF8: "UTF-8 with a byte order mark",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """The documents of one file or of standard input."""

    place: str
    documents: list[Any]
    tokens: Callable[[str], Iterator[Token]]
    text: str

    @property
    def argument(self) -> str:
        """The command line argument that reads this file."""
        return STDIN if self.place == _STDIN_PLACE else self.place

    def lines(self, wanted: Iterable[Location]) -> dict[Location, int]:
        """Lines of entries and of all their parents; a location starts with the index of the document."""
        return lines_of(self.tokens(self.text), wanted)


def read_file(source: str, *, largest: int = LARGEST_BYTES) -> DocumentFile:
    """
    Read all documents of one file; `-` is standard input.

    Raises
    ------
    BadInputError
        With one problem: the file cannot be read, or it is not YAML or JSON.
    """
    place = _STDIN_PLACE if source == STDIN else source
    try:
        path = None if source == STDIN else Path(source)
        text = _decoded(read_bytes(path, hint=_CHECK_THE_PATH, largest=largest))
        return _parsed(text, place, Path(source).suffix.lower())
    except RefusedError as error:
        where = place if error.line is None else f"{place}:{error.line}"
        raise BadInputError((InputProblem(where, error.message),)) from None


def read_bytes(path: Path | None, *, hint: str, largest: int = LARGEST_BYTES) -> bytes:
    """The content of a file, or of standard input if `path` is None; `hint` says what to do if it fails."""
    try:
        with path.open("rb") if path else nullcontext(sys.stdin.buffer) as file:
            content = file.read(largest + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RefusedError(None, f"cannot be read: {reason}.\n{hint}") from None
    if len(content) > largest:
        raise RefusedError(
            None, f"is larger than {largest / 2**20:g} MiB, the most that is read of one file.\n{SPLIT_IT}"
        )
    return content


def decode_utf_8(content: bytes, *, hint: str = "", encoding: str = "utf-8") -> str:
    """The text of a content."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line, byte = error.object.count(b"\n", 0, error.start) + 1, error.object[error.start]
        raise RefusedError(line, f"has byte 0x{byte:02x}; expected text in UTF-8.{hint}") from None


def _decoded(content: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            raise RefusedError(None, f"is {encoding}; expected plain UTF-8.")
    text = decode_utf_8(content)
    if control := _CONTROL.search(text):
        line = text.count("\n", 0, control.start()) + 1
        raise RefusedError(line, f"has control character 0x{ord(control[0]):02x}; expected text.")
    return text


def _parsed(text: str, place: str, suffix: str) -> DocumentFile:
    """Parse as JSON if the file name or the first character says so, otherwise as YAML."""
    begins_like_json = text.lstrip().startswith(("{", "["))
    if suffix == JSON_SUFFIX or (begins_like_json and suffix not in YAML_SUFFIXES):
        return DocumentFile(place, [read_json(text)] if text.strip() else [], json_tokens, text)
    if begins_like_json:
        try:
            return DocumentFile(place, [read_json(text)], json_tokens, text)
        except RefusedError:
            pass  # YAML in braces, or invalid: the YAML reader below decides
    return DocumentFile(place, read_yaml(text), yaml_tokens, text)


# JSON, read by the standard library; if it is refused, the tokens tell the line of a duplicate key or a NaN.


_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\]:,"]+', re.DOTALL)
_OPENING: Final = {"{": TokenKind.MAPPING, "[": TokenKind.LIST}
_TEN_DIGITS = re.compile("[0-9]{10}")
_ESCAPE = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)|\\\\|\\u(d[89a-f]..)", re.IGNORECASE)


class _NotStrictError(ValueError):
    """Input that a reader does not accept; the tokens tell its line."""


def read_json(text: str) -> Any:
    """
    The document of a JSON text.

    Raises
    ------
    RefusedError
        It is not JSON, or it has duplicate keys, NaN, Infinity, half surrogate pairs, integers with too many
        digits or nesting that is too deep.
    """
    # Two values have a comma between them. Commas inside texts count too, so the check is a little stricter.
    if text.count(",") >= MOST_VALUES:
        raise too_many_values(None)
    if "\\u" in text:
        _refuse_half_pairs(text)
    # Of the digits of a number that is too long, ten in a row are at multiples of a tenth of that length.
    integer = _integer if _TEN_DIGITS.search(text[:: LONGEST_NUMBER // 10]) else None
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=integer)
    except json.JSONDecodeError as error:
        found = f"expected JSON, found an error at column {error.colno}: {error.msg}."
        raise RefusedError(error.lineno, found) from None
    except (_NotStrictError, RecursionError):
        refuse(json_tokens(text), "JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise _NotStrictError
    return mapping


def _integer(digits: str) -> int:
    if len(digits.lstrip("-")) > LONGEST_NUMBER:
        raise _NotStrictError
    return int(digits)


def _no_constant(_: str) -> NoReturn:
    raise _NotStrictError


_PIECES: Final = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer)


def _refuse_half_pairs(text: str) -> None:
    for match in _ESCAPE.finditer(text):
        if match[3]:
            line = text.count("\n", 0, match.start()) + 1
            found = f"has {match[0]}, half of a surrogate pair; expected whole characters."
            raise RefusedError(line, found)


def json_tokens(text: str) -> Iterator[Token]:
    """Tokens of a text that the standard parser accepts as JSON, up to the first value refused here."""
    line, end = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        piece = match[0]
        if piece in _OPENING:
            yield Token(_OPENING[piece], line)
        elif piece in ("}", "]"):
            yield Token(TokenKind.END, line)
        elif piece[0] == '"':
            yield Token(TokenKind.SCALAR, line, json.loads(piece) if "\\" in piece else piece[1:-1])
        else:
            yield Token(TokenKind.SCALAR, line, _checked(piece, line))


def _checked(piece: str, line: int) -> str:
    """A number or a word that JSON knows."""
    try:
        _PIECES.decode(piece)
    except ValueError:
        if len(piece) <= LONGEST_NUMBER:
            raise RefusedError(line, f"has {piece[:60]}; expected a JSON value.") from None
        found = f"has a number of {len(piece)} digits; expected at most {LONGEST_NUMBER}."
        raise RefusedError(line, found) from None
    return piece


# YAML with the core schema of YAML 1.2, read event by event.
#
# PyYAML's own loaders follow YAML 1.1, where `no` is false, `1:30` is 90 and `2026-11-20` is a date. Anchors
# and tags are rejected, because nested aliases can expand to more data than fits in memory.


_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_ENDS: Final = {yaml.MappingEndEvent, yaml.SequenceEndEvent}
_VALUES: Final = {yaml.ScalarEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent, yaml.AliasEvent}
_NUMBER_STARTS: Final = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_yaml(text: str) -> list[Any]:
    """
    All documents of a YAML text.

    Raises
    ------
    RefusedError
        It is not YAML, or it has duplicate keys, keys that are not texts, anchors, tags, aliases, numbers
        that are not finite or have too many digits, half surrogate pairs or nesting that is too deep.
    """
    try:
        return _built(text)
    except _NotStrictError:
        refuse(yaml_tokens(text), "YAML")
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = " ".join(part for part in (error.context, error.problem) if part)
        column = f" at column {mark.column + 1}" if mark else ""
        found = f"expected YAML, found an error{column}: {problem}."
        raise RefusedError(mark.line + 1 if mark else None, found) from None
    except yaml.YAMLError as error:
        # Characters that YAML does not allow; PyYAML knows only their offset, not the line.
        found = str(error).splitlines()[0][:200]
        raise RefusedError(None, f"expected YAML, found an error: {found}.") from None


def _built(text: str) -> list[Any]:
    """All documents, without a recursion that deep nesting could exhaust."""
    documents: list[Any] = []
    # The list or mapping that is being filled, those around it, and the key before the next value.
    holder: Any = documents
    around: list[Any] = []
    key: str | None = None
    values = 0
    for event in iter(_LOADER(text).get_event, None):
        kind = type(event)
        if kind in _ENDS:
            holder = around.pop()
        elif kind in _VALUES:
            value = _scalar(event) if kind is yaml.ScalarEvent else _opened(event)
            if key is not None:
                holder[key] = value
                key = None
            elif holder.__class__ is list:
                holder.append(value)
            else:
                key = _key(event, holder)
                continue
            values += 1
            if kind is not yaml.ScalarEvent:
                around.append(holder)
                holder = value
            if values > MOST_VALUES or len(around) > MAX_DEPTH:
                raise _NotStrictError
    return documents


def yaml_tokens(text: str) -> Iterator[Token]:
    """Tokens of a YAML text, up to the first one that is not YAML."""
    for event in iter(_LOADER(text).get_event, None):
        line = event.start_mark.line + 1
        match event:
            case yaml.ScalarEvent():
                yield Token(TokenKind.SCALAR, line, event.value)
            case yaml.MappingStartEvent():
                yield Token(TokenKind.MAPPING, line)
            case yaml.SequenceStartEvent():
                yield Token(TokenKind.LIST, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                yield Token(TokenKind.END, line)


def _scalar(event: Any) -> Any:
    """The value of a scalar."""
    if event.anchor is not None or event.tag is not None:
        _refuse_references(event)
    text = event.value
    if not text.isascii() and _SURROGATE.search(text):
        raise _refused(event, "has half of a surrogate pair; expected whole characters.")
    if not event.implicit[0]:
        return text  # in quotes
    if text in _WORDS:
        value = _WORDS[text]
    elif text[0] in _NUMBER_STARTS:
        value = _number(event)
    else:
        return text
    if isinstance(value, float) and not math.isfinite(value):
        raise _refused(event, f"has number {text[:60]}; expected a finite one.")
    return value


def _number(event: Any) -> int | float | str:
    """The number that a scalar states; the scalar itself if it is not a number, such as `1h30m`."""
    text = event.value
    is_integer = _INTEGER.fullmatch(text) or _OCTAL_OR_HEX.fullmatch(text)
    if not is_integer and not _FLOAT.fullmatch(text):
        return str(text)
    if len(text) > LONGEST_NUMBER:
        raise _refused(event, f"has a number of {len(text)} digits; expected at most {LONGEST_NUMBER}.")
    if not is_integer:
        return float(text)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _opened(event: Any) -> dict[str, Any] | list[Any]:
    """The mapping or list that begins."""
    _refuse_references(event)
    return {} if isinstance(event, yaml.MappingStartEvent) else []


def _key(event: Any, holder: dict[str, Any]) -> str:
    """The key of a mapping's next value."""
    if not isinstance(event, yaml.ScalarEvent):
        raise _refused(event, "has a list or a mapping as a key; expected a text.")
    if event.value in holder:
        raise _NotStrictError
    return sys.intern(event.value)


def _refuse_references(event: Any) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise _refused(event, f"has alias *{event.anchor}; expected the value itself, in full.")
    if event.anchor is not None:
        raise _refused(event, f"has anchor &{event.anchor}; expected each value written out in full.")
    if event.tag is not None:
        raise _refused(event, f"has tag {event.tag[:60]!r}; expected plain values (texts in quotes).")


def _refused(event: Any, message: str) -> RefusedError:
    return RefusedError(event.start_mark.line + 1, message)
