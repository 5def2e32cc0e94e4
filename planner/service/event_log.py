"""
The log of a run: one line per event, as key=value pairs or as JSON.

Events are standard logging records with their fields in an extra attribute, so an embedding program can
format them in its own way.
"""

from __future__ import annotations

import json
import logging
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TextIO

from gpuplan.planner.text_format import printable_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FIELDS = "gpuplan_fields"


class LogFormat(StrEnum):
    """Format of the log lines."""

    TEXT = "text"
    JSON = "json"


def log_event(
    logger: logging.Logger,
    event: str,
    *,
    level: int = logging.INFO,
    traced: bool = False,
    whole: Mapping[str, Any] | None = None,
    **fields: Any,
) -> None:
    """
    Log one event, with the traceback of the current exception if `traced`.

    Empty fields are left out, except those of `whole`, where an empty value is meaningful.
    """
    known = {name: value for name, value in fields.items() if value not in (None, "", (), {})}
    logger.log(level, event, extra={_FIELDS: known | dict(whole or {})}, exc_info=traced)


def line_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Fields of a record's line, in order."""
    at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    head = {"at": at.replace("+00:00", "Z"), "level": record.levelname.lower()}
    fields = getattr(record, _FIELDS, None)
    body = {"logger": record.name, "message": record.getMessage()} if fields is None else fields
    event = {} if fields is None else {"event": record.msg}
    fault = {"traceback": logging.Formatter().formatException(record.exc_info)} if record.exc_info else {}
    return {**head, **event, **body, **fault}


class TextLines(logging.Formatter):
    """Lines such as `at=… level=info event=planned epoch=3`; unusual values are JSON strings."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return " ".join(f"{name}={_text(value)}" for name, value in line_fields(record).items())


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        return printable_json(json.dumps(line_fields(record), ensure_ascii=False, default=str))


@contextmanager
def logging_to(stream: TextIO, form: LogFormat, *, least: int = logging.INFO) -> Iterator[None]:
    """Write run events from level `least`, and other log records at the configured level, to a stream."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if form is LogFormat.JSON else TextLines())
    root, own = logging.getLogger(), logging.getLogger("gpuplan.planner.service")
    before, level = root.handlers[:], own.level
    root.handlers[:] = [handler]
    own.setLevel(min(least, root.level))
    try:
        yield
    finally:
        root.handlers[:] = before
        own.setLevel(level)


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    plain = text.isprintable() and not set(text) & set(" \"'=") and text
    return text if plain else printable_json(json.dumps(text, ensure_ascii=False))
