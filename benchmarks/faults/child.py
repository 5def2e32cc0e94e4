"""Commands of gpuplan in processes of their own, which a fault may strike or kill."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.faults.kinds import Fault, install

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

CHILDREN: Final = multiprocessing.get_context("forkserver")
# Imported once, in the server that the children are forked from: a command then takes a tenth of a second.
CHILDREN.set_forkserver_preload(
    [
        "pytest",
        "benchmarks.faults.sabotage",
        "gpuplan.planner.api",
        "gpuplan.planner.cli",
        "gpuplan.planner.cli.plan_request",
        "gpuplan.planner.apply.apply",
        "gpuplan.planner.epoch",
        "gpuplan.planner.executors.local.host",
        "gpuplan.planner.executors.simulated",
        "gpuplan.planner.executors.slurm.cluster",
        "gpuplan.planner.render.plan.text",
        "gpuplan.planner.approval.approval_check",
        "gpuplan.planner.service.host_files",
        "gpuplan.planner.service.loop",
        "gpuplan.planner.service.run_files",
        "gpuplan.solvers.exact.milp",
        "gpuplan.planner.sources.files",
        "tests.support.children.built_schemas",
    ]
)
_LONGEST: Final = 120.0
"""Seconds after which a command hangs."""
_UNTOLD: Final = 255
"""What multiprocessing says of a child with an end that it was not told."""
_STARTING: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    code: int
    """Exit code, negative for a signal."""
    output: str
    seconds: float


def run_command(
    words: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    fault: Fault | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> Ended:
    """Run `gpuplan WORDS` in a folder; `meanwhile` happens while a fault makes the command wait."""
    began = time.monotonic()
    output = folder / f"output-{time.monotonic_ns()}.txt"
    arguments = (tuple(words), str(folder), dict(environment), str(output), fault)
    child = CHILDREN.Process(target=_be_command, args=arguments)
    with _STARTING:
        child.start()
    while child.is_alive() and time.monotonic() - began < _LONGEST:
        child.join(0.01 if meanwhile is not None else 1)
        if fault is not None and meanwhile is not None and (Path(fault.folder) / "met").exists():
            meanwhile()
            meanwhile = None
            (Path(fault.folder) / "go").touch()
    code = child.exitcode
    if code is None:
        child.kill()
        child.join()
        code = 124
    told = Path(f"{output}.code")
    if code == _UNTOLD and told.exists():
        code = int(told.read_text())
    told.unlink(missing_ok=True)
    text = output.read_text(errors="replace") if output.exists() else ""
    output.unlink(missing_ok=True)
    return Ended(code, text, time.monotonic() - began)


def _be_command(
    words: tuple[str, ...], folder: str, environment: dict[str, str], output: str, fault: Fault | None
) -> None:
    os.setsid()
    os.chdir(folder)
    os.environ.update(environment)
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if "GPUPLAN_FAULTS_NVML" in environment:
        import ctypes

        # Loaded already, it is what NVIDIA's bindings find.
        ctypes.CDLL(environment["GPUPLAN_FAULTS_NVML"], mode=ctypes.RTLD_GLOBAL)
    boot = environment.get("GPUPLAN_FAULTS_BOOT")
    if boot is not None:
        _boot_as(boot)
    if fault is not None:
        install(fault)
        if fault.sabotage:
            from benchmarks.faults.sabotage import SABOTAGES

            SABOTAGES[fault.sabotage]()
    from gpuplan.planner.cli import main

    sys.argv = ["gpuplan", *words]
    try:
        main()
    except SystemExit as end:
        # The server that forks may lose the code of a child.
        Path(f"{output}.code").write_text(str(end.code))
        raise


def _boot_as(boot: str) -> None:
    """Let this process and the supervisors that it begins see a boot of the host with this id."""
    import subprocess
    from types import SimpleNamespace

    from gpuplan.planner.executors.local import private_files, runs

    private_files.boot_id = runs.boot_id = lambda: boot
    real = subprocess.run

    def run(words: list[str], **how: object) -> object:
        module, folder, number = words[3:6]
        code = (
            f"from gpuplan.planner.executors.local import private_files as p; p.boot_id = lambda: {boot!r}; "
            f"from pathlib import Path; import {module} as s; s.main(Path({folder!r}), {number})"
        )
        return real([words[0], "-P", "-c", code], **how)  # type: ignore[call-overload]

    runs.subprocess = SimpleNamespace(**{**vars(subprocess), "run": run})  # type: ignore[assignment]
