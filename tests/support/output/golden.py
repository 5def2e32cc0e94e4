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
    """Words of a message that have a digit, in order: its numbers, times, sizes and numbered names."""
    return " ".join(word.rstrip(".'") for word in re.findall(r"[^\s,;:()×']*\d[^\s,;()×']*", text))
