"""The session of a page, in its block of kind `console`: run again, and compared but for what varies."""

from __future__ import annotations

import os
import re
import shlex

from tests.support.output.markdown_blocks import fenced

VARIES = (
    (re.compile(r"\b[0-9a-f]{8}\b"), "ID"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r" (?:\d{4}-\d\d-\d\d )?\d\d:\d\d(?::\d\d)?$", re.MULTILINE), " TIME"),
    (re.compile(r"\b(?:waited|ran) \d+s\b|\bjust submitted\b|(?<=makes room for job 2; )[^,]*"), "AGE"),
    # A job that ran for less than a second has lost nothing.
    (re.compile(r"loses (?:no work|less than 0\.1 GPU-hours\s+without\s+a\s+checkpoint)"), "LOSS"),
    (re.compile(r"\s+\(less\s+than\s+0\.1\s+GPU-hours\s+lost\)"), ""),
    (re.compile(r"\bin \d+\.\d s"), "in SECONDS"),
    (re.compile(r"(?<=[ +-])\d{1,3}(?:,\d{3})+\b|\b(?<=preemption -)\d+"), "POINTS"),
    (re.compile(r"\s+"), " "),
)


def replay(page, run):
    """
    What the page's only session shows, and what its commands print now; both without what varies.

    `run` gets the words of a command. With GPUPLAN_REWRITE_GOLDEN the page is written anew.
    """
    (shown,) = fenced(page.read_text(), "console")
    happened = ""
    for line in [line for line in shown.splitlines() if line.startswith("$ ")]:
        done = run(shlex.split(line.removeprefix("$ ")))
        assert done.returncode == 0, done.stdout + done.stderr
        happened += f"{line}\n{done.stderr}{done.stdout}"
    if os.environ.get("GPUPLAN_REWRITE_GOLDEN"):
        page.write_text(page.read_text().replace(shown, happened))
        shown = happened
    return _constant(shown), _constant(happened)


def _constant(text):
    for pattern, instead in VARIES:
        text = pattern.sub(instead, text)
    return text
