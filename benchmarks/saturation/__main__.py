"""`python -m benchmarks.saturation FOLDER` prints the tables; FOLDER has the CSV files of the openb trace."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.saturation.mixes import JUDGE, TUNE
from benchmarks.saturation.report import Settings, gpuplan_table, mix_table, report
from benchmarks.saturation.trace import VARIANTS


def main() -> None:
    usual = Settings(Path())
    parser = argparse.ArgumentParser(prog="python -m benchmarks.saturation", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="default: GPUPLAN_OPENB_DIR")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=usual.variants)
    parser.add_argument("--seeds", nargs="+", type=int, default=usual.seeds)
    parser.add_argument("--batches", nargs="+", type=int, default=usual.batches)
    parser.add_argument("--solvers", nargs="*", default=usual.solvers)
    parser.add_argument("--seconds", type=float, default=usual.seconds)
    parser.add_argument("--migrate", action="store_true")
    parser.add_argument("--workers", type=int, default=usual.workers)
    parser.add_argument("--mixes", choices=("tune", "judge"), help="mixes of pods instead of variants")
    parser.add_argument("--gpuplan-only", action="store_true", help="leave out the online policies")
    given = parser.parse_args()
    folder = given.folder or (Path(named) if (named := os.environ.get("GPUPLAN_OPENB_DIR")) else None)
    if folder is None:
        parser.error("name the trace's folder, or set GPUPLAN_OPENB_DIR")
    mixes = {"tune": TUNE, "judge": JUDGE}.get(given.mixes or "", {})
    settings = Settings(
        folder,
        tuple(mixes or given.variants),
        tuple(given.seeds),
        tuple(given.batches),
        tuple(given.solvers),
        given.seconds,
        given.migrate,
        given.workers,
    )
    if mixes:
        print(mix_table(settings))
    else:
        print(gpuplan_table(settings) if given.gpuplan_only else report(settings))


if __name__ == "__main__":
    main()
