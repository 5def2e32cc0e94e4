"""Records: measurements with date, versions and machine, one JSON object per line."""

from __future__ import annotations

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

_PACKAGES: Final = ("gpuplan", "highspy", "numpy", "ortools", "pulp", "pydantic")
_CPUS: Final = Path("/proc/cpuinfo")
_GIB: Final = 2**30

Record = dict[str, Any]


def facts() -> Record:
    """Date, versions and machine, without its name."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "cpu": _cpu_model(),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _GIB),
        },
    }


def facts_in_words() -> str:
    """The facts as one sentence."""
    found = facts()
    machine = found["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in found["versions"].items())
    return (
        f"Measured on {found['date']}: {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['memory_gib']} GiB, Python {found['python']}, {versions}."
    )


def append(path: Path | None, benchmark: str, measured: Record) -> None:
    """Append a line to the file, if there is one."""
    if path is None:
        return
    line = json.dumps({"benchmark": benchmark} | measured | facts(), sort_keys=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def read(path: Path, benchmark: str | None = None) -> list[Record]:
    """Records of a file in their order, of one benchmark or of all."""
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [record for record in records if benchmark in (None, record["benchmark"])]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    if not _CPUS.exists():
        return platform.processor() or platform.machine()
    named = (line for line in _CPUS.read_text().splitlines() if line.startswith("model name"))
    return next(named, ": unknown").partition(": ")[2]
