"""
Documents: the plain data of a YAML or JSON file, and the line of each entry.

Lines are looked up only if an entry has a problem, which keeps reading fast.
"""

from __future__ import annotations

import codecs
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.planner.sources.documents.json_reader import json_tokens, read_json
from gpuplan.planner.sources.documents.tokens import RefusedError, Token, build_documents, entries, lines_of
from gpuplan.planner.sources.documents.yaml_reader import yaml_tokens

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
        return lines_of(entries(self.tokens(self.text)), wanted)


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
        return _parsed(_decoded(_content(source, largest)), place, Path(source).suffix.lower())
    except RefusedError as error:
        where = place if error.line is None else f"{place}:{error.line}"
        raise BadInputError((InputProblem(where, error.message),)) from None


def _content(source: str, largest: int) -> bytes:
    try:
        if source == STDIN:
            content = sys.stdin.buffer.read(largest + 1)
        else:
            with Path(source).open("rb") as file:
                content = file.read(largest + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise RefusedError(None, f"cannot be read: {reason}.\n{_CHECK_THE_PATH}") from None
    if len(content) > largest:
        raise RefusedError(None, f"is larger than {largest / 2**20:g} MiB, the most that is read.")
    return content


def _decoded(content: bytes) -> str:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            raise RefusedError(None, f"is {encoding}; expected plain UTF-8.")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise RefusedError(line, f"has byte 0x{content[error.start]:02x}; expected text in UTF-8.") from None
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
    return DocumentFile(place, build_documents(entries(yaml_tokens(text))), yaml_tokens, text)
