"""Fenced blocks of Markdown pages."""

from __future__ import annotations

import re


def fenced(page, kind):
    """Contents of all fenced blocks of a kind, in order; with `text demo` of those with both words."""
    return re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
