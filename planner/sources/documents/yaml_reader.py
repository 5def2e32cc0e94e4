"""
YAML with the core schema of YAML 1.2, read event by event.

PyYAML's own loaders follow YAML 1.1, where `no` is false, `1:30` is 90 and `2026-11-20` is a date. Anchors
and tags are rejected, because nested aliases can expand to more data than fits in memory.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Final

import yaml

from gpuplan.planner.sources.documents.tokens import LONGEST_NUMBER, RefusedError, Token, TokenKind

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_NUMBER_STARTS: Final = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL_OR_HEX = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")


def yaml_tokens(text: str) -> Iterator[Token]:
    """Tokens of all documents of a YAML text."""
    try:
        events: Iterator[Any] = yaml.parse(text, Loader=_LOADER)
        for event in events:
            line = event.start_mark.line + 1
            match event:
                case yaml.ScalarEvent():
                    _refuse_anchor_and_tag(event, line)
                    in_quotes = not event.implicit[0]
                    value = event.value if in_quotes else _plain(event.value, line)
                    if not event.value.isascii() and _SURROGATE.search(event.value):
                        raise RefusedError(line, "has half of a surrogate pair; expected whole characters.")
                    yield Token(TokenKind.SCALAR, line, value, event.value)
                case yaml.MappingStartEvent():
                    _refuse_anchor_and_tag(event, line)
                    yield Token(TokenKind.MAPPING, line)
                case yaml.SequenceStartEvent():
                    _refuse_anchor_and_tag(event, line)
                    yield Token(TokenKind.LIST, line)
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    yield Token(TokenKind.END, line)
                case yaml.AliasEvent():
                    message = f"has alias *{event.anchor}; expected the value itself, in full."
                    raise RefusedError(line, message)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from None
    except yaml.YAMLError as error:
        # Characters that YAML does not allow; PyYAML knows only their offset, not the line.
        found = str(error).splitlines()[0][:200]
        raise RefusedError(None, f"expected YAML, found an error: {found}.") from None


def _refuse_anchor_and_tag(event: Any, line: int) -> None:
    if event.anchor is not None:
        raise RefusedError(line, f"has anchor &{event.anchor}; expected each value written out in full.")
    if event.tag is not None:
        raise RefusedError(line, f"has tag {event.tag[:60]!r}; expected plain values (texts in quotes).")


def _plain(text: str, line: int) -> Any:
    """The value of an unquoted scalar."""
    if text in _WORDS:
        value = _WORDS[text]
    elif text[0] in _NUMBER_STARTS:
        value = _number(text, line)
    else:
        return text
    if isinstance(value, float) and not math.isfinite(value):
        raise RefusedError(line, f"has number {text[:60]}; expected a finite one.")
    return value


def _number(text: str, line: int) -> int | float | str:
    """The number that a scalar states; the scalar itself if it is not a number, such as `1h30m`."""
    is_integer = _INTEGER.fullmatch(text) or _OCTAL_OR_HEX.fullmatch(text)
    if not is_integer and not _FLOAT.fullmatch(text):
        return text
    if len(text) > LONGEST_NUMBER:
        raise RefusedError(line, f"has a number of {len(text)} digits; expected at most {LONGEST_NUMBER}.")
    if not is_integer:
        return float(text)
    return int(text, 0) if text[:2] in ("0o", "0x") else int(text)


def _syntax_error(error: yaml.MarkedYAMLError) -> RefusedError:
    mark = error.problem_mark or error.context_mark
    problem = " ".join(part for part in (error.context, error.problem) if part)
    if mark is None:
        return RefusedError(None, f"expected YAML, found an error: {problem}.")
    return RefusedError(
        mark.line + 1, f"expected YAML, found an error at column {mark.column + 1}: {problem}."
    )
