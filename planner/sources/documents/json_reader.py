"""
JSON, parsed by the standard library for speed, and parsed again token by token if it is rejected.

The standard parser does not report the line of a duplicate key or a NaN; the token reader does.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gpuplan.planner.sources.documents.tokens import (
    LONGEST_NUMBER,
    MOST_VALUES,
    RefusedError,
    Token,
    TokenKind,
    build_documents,
    entries,
    too_many_values,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]|[^\s{}\[\]:,"]+', re.DOTALL)
_OPENING: Final = {"{": TokenKind.MAPPING, "[": TokenKind.LIST}
_LONG_NUMBER = re.compile(rf"[0-9]{{{LONGEST_NUMBER + 1}}}")
_ESCAPE = re.compile(r"\\u(d[89ab]..)\\u(d[c-f]..)|\\\\|\\u(d[89a-f]..)", re.IGNORECASE)


class _NotStrictError(ValueError):
    """Input that the standard parser would accept, but that is rejected here."""


def read_json(text: str) -> Any:
    """
    The document of a JSON text.

    Raises
    ------
    RefusedError
        It is not JSON, or it has duplicate keys, NaN, Infinity, half surrogate pairs, numbers with too many
        digits or nesting that is too deep.
    """
    # Two values have a comma between them. Commas inside texts count too, so the check is a little stricter.
    if text.count(",") >= MOST_VALUES:
        raise too_many_values(None)
    if "\\u" in text:
        _refuse_half_pairs(text)
    try:
        # The standard parser accepts integers of up to 4,300 digits, too large for any calculation here.
        integer = _integer if _LONG_NUMBER.search(text) else None
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=integer)
    except json.JSONDecodeError as error:
        found = f"expected JSON, found an error at column {error.colno}: {error.msg}."
        raise RefusedError(error.lineno, found) from None
    except (ValueError, RecursionError):
        build_documents(entries(json_tokens(text)))
        # The token reader is the stricter one, so this line should never be reached.
        raise RefusedError(None, "expected JSON, found something else.") from None


def json_tokens(text: str) -> Iterator[Token]:
    """Tokens of a text that the standard parser accepts as JSON, up to the first value rejected here."""
    line, end = 1, 0
    for match in _TOKEN.finditer(text):
        line += text.count("\n", end, match.start())
        end = match.start()
        piece = match[0]
        if piece in _OPENING:
            yield Token(_OPENING[piece], line)
        elif piece in ("}", "]"):
            yield Token(TokenKind.END, line)
        else:
            value = _scalar(piece, line)
            yield Token(TokenKind.SCALAR, line, value, value if isinstance(value, str) else piece)


def _scalar(piece: str, line: int) -> Any:
    if piece[0] != '"' and len(piece) > LONGEST_NUMBER:
        raise RefusedError(line, f"has a number of {len(piece)} digits; expected at most {LONGEST_NUMBER}.")
    if piece[0] == '"' and "\\" not in piece:
        return piece[1:-1]
    try:
        return _PIECES.decode(piece)
    except ValueError:
        raise RefusedError(line, f"has {piece[:60]}; expected a JSON value.") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise _NotStrictError
    return mapping


def _integer(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        raise _NotStrictError
    return int(digits)


def _no_constant(_: str) -> NoReturn:
    raise _NotStrictError


_PIECES: Final = json.JSONDecoder(parse_constant=_no_constant)


def _refuse_half_pairs(text: str) -> None:
    for match in _ESCAPE.finditer(text):
        if match[3]:
            line = text.count("\n", 0, match.start()) + 1
            found = f"has {match[0]}, half of a surrogate pair; expected whole characters."
            raise RefusedError(line, found)
