"""Readings of recorded Slurm clusters, with changes of their records."""

from __future__ import annotations

import json
from pathlib import Path

from gpuplan.planner.sources.slurm.slurm import read_slurm
from gpuplan.planner.sources.slurm.texts import SlurmTexts

RECORDED = Path(__file__).parents[2] / "planner" / "sources" / "slurm" / "recorded"
VERSIONS = ("22.05", "24.11")


def texts(version="22.05", **changes):
    """The recorded texts, with changes of the records: `jobs` and `nodes` map a key's value to changes."""
    folder = RECORDED / version
    found = {}
    for key in ("nodes", "jobs"):
        document = json.loads((folder / f"{key}.json").read_text())
        change = changes.get(key, lambda _: {})
        document[key] = [record | change(record) for record in document[key]]
        found[key] = json.dumps(document).encode()
    others = ("partitions", "topology", "reservations", "config", "associations", "qos")
    return SlurmTexts(**found, **{key: changes[key] for key in others if key in changes})


def read(version="22.05", **changes):
    return read_slurm(texts(version, **changes), where=str)


def job(reading, name):
    return reading.snapshot.job_by_name[name]


def pending(name, **record):
    """The reading with a change of one job."""
    return read(jobs=lambda each: record if each["name"] == name else {})
