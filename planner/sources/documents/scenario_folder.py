"""Scenario folders: a snapshot as readable files that compare well, with one node or job per line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from gpuplan.models.units import print_timestamp
from gpuplan.planner.io.atomic_write import write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpuplan.models.base import Noun
    from gpuplan.models.snapshot import Snapshot

CLUSTER_FILE: Final = "cluster.json"
QUEUES_FILE: Final = "queues.yaml"
JOBS_FILE: Final = "jobs.json"
SCENARIO_FILES: Final = (CLUSTER_FILE, QUEUES_FILE, JOBS_FILE)


def write_scenario(snapshot: Snapshot, directory: Path) -> None:
    """Write the snapshot into a directory and replace the previous content of these files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in scenario_files(snapshot.canonical()).items():
        write_atomically(directory / name, text)


def scenario_files(snapshot: Snapshot) -> dict[str, str]:
    """The texts by file name; together they contain the whole snapshot."""
    taken_at = print_timestamp(snapshot.taken_at)
    head = f'"format_version": {_json(snapshot.format_version)}, "taken_at": {_json(taken_at)}'
    about = {key: value for key, value in snapshot.cluster.document().items() if key not in ("name", "nodes")}
    parts = {"name": _json(snapshot.cluster.name)} | {key: _json(value) for key, value in about.items()}
    parts["nodes"] = _lines(snapshot.cluster.nodes)
    cluster = ", ".join(f'"{key}": {text}' for key, text in parts.items())
    # A JSON mapping is also valid YAML, and a queue is easiest to read on one line.
    queues = "".join(f"\n- {_json(queue.document())}" for queue in snapshot.queues)
    finished = f', "finished": {_lines(snapshot.finished)}' if snapshot.finished else ""
    return {
        CLUSTER_FILE: f'{{{head}, "cluster": {{{cluster}}}}}\n',
        QUEUES_FILE: f"queues:{queues or ' []'}\n",
        JOBS_FILE: f'{{"jobs": {_lines(snapshot.jobs)}{finished}}}\n',
    }


def _lines(nouns: Iterable[Noun]) -> str:
    return "[\n" + ",\n".join(_json(noun.document()) for noun in nouns) + "\n]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
