"""Commands run in this process, as a terminal of 80 columns would show them."""

from __future__ import annotations

import io
import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from unittest import mock

from gpuplan.planner.cli import main


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def run_command(words, *, folder, columns=80):
    """What `gpuplan WORDS` prints and ends with: far cheaper than a process of its own."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    argv = mock.patch.object(sys, "argv", ["gpuplan", *map(str, words)])
    environment = mock.patch.dict(os.environ, {"COLUMNS": str(columns)})
    code = None
    with argv, environment, chdir(folder), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    return Done(code or 0, *(stream.buffer.getvalue().decode() for stream in (out, err)))
