"""Expected outputs in files, one for a family of messages; `make golden` rewrites them."""

from __future__ import annotations

import os
import re

REWRITE = "GPUPLAN_REWRITE_GOLDEN" in os.environ


def golden(path, found):
    """The expected text in a file, which is what was found if the file is to be rewritten."""
    if REWRITE:
        path.write_text(found, encoding="utf-8")
    return path.read_text(encoding="utf-8")


def golden_section(path, name, found):
    """The expected text of one section of such a file; a section begins with a line `=== name ===`."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    parts = re.split(r"^=== (.+) ===\n", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    if REWRITE:
        sections[name] = found
        path.write_text("".join(f"=== {key} ===\n{one}" for key, one in sections.items()), encoding="utf-8")
    return sections[name]


def golden_session(page, shown, happened, varies):
    """
    Compare the session that a page shows with what happened, without what differs from run to run.

    `varies`: (pattern, what is written instead) in addition to ids, times and seconds.
    """
    if REWRITE:
        page.write_text(page.read_text(encoding="utf-8").replace(shown, happened), encoding="utf-8")
        return
    for pattern, instead in (*_IN_ALL_SESSIONS, *varies, (re.compile(r"\s+"), " ")):
        shown, happened = pattern.sub(instead, shown), pattern.sub(instead, happened)
    assert happened == shown


_IN_ALL_SESSIONS = (
    (re.compile(r"\b[0-9a-f]{8}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\bin \d+\.\d s"), "in SECONDS"),
)


def figures(text):
    """Names in quotes and words that have a digit, in order: what a message is about, and how much."""
    return " ".join(quoted or word.rstrip(".:") for quoted, word in _FIGURE.findall(text))


_FIGURE = re.compile(r"(?<!\w)'([^']*)'(?!\w)|([^\s,;()×'`]*\d[^\s,;()×'`]*)")
