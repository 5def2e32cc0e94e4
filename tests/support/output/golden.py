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


def figures(text):
    """Names in quotes and words that have a digit, in order: what a message is about, and how much."""
    return " ".join(quoted or word.rstrip(".:") for quoted, word in _FIGURE.findall(text))


_FIGURE = re.compile(r"(?<!\w)'([^']*)'(?!\w)|([^\s,;()×'`]*\d[^\s,;()×'`]*)")
