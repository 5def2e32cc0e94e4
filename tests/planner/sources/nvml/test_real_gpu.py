"""
The GPUs of this machine, if it has any: what gpuplan reads is what nvidia-smi tells, and nothing is changed.

`pytest -m gpu -rs` on a host with NVIDIA's driver; elsewhere it is skipped.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys

import pynvml
import pytest

_FIELDS = ("index", "uuid", "name", "memory.total", "mig.mode.current")
_SETTINGS = (
    "index",
    "mig.mode.pending",
    "power.limit",
    "persistence_mode",
    "compute_mode",
    "ecc.mode.pending",
)
_TOLERANCE = 0.02
"""Of memory, which tools round and of which some take the driver's own part away."""


def missing_gpus():
    """Why there is nothing to look at; empty if there is."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return f"no NVIDIA driver: {error}"
    count = pynvml.nvmlDeviceGetCount()
    pynvml.nvmlShutdown()
    if not count:
        return "the driver finds no GPU"
    return "" if shutil.which("nvidia-smi") else "no nvidia-smi to compare with"


def nvidia_smi(fields):
    """A row for each GPU, by field."""
    words = ("nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return [dict(zip(fields, map(str.strip, row), strict=True)) for row in csv.reader(said.splitlines())]


def contradictions(rows, node):
    """What a node of a snapshot, as its document has it, says otherwise than nvidia-smi."""
    gpus = node["gpus"]
    details = {each["index"]: each for each in gpus.get("details", ())}
    if gpus["count"] != len(rows):
        yield f"{gpus['count']} GPUs instead of {len(rows)}"
    for row in rows:
        index = int(row["index"])
        found = details.get(index, {})
        if found.get("uuid") != row["uuid"]:
            yield f"GPU {index}: UUID {found.get('uuid')} instead of {row['uuid']}"
        if (found.get("mig") is not None) != (row["mig.mode.current"] == "Enabled"):
            yield f"GPU {index}: MIG {found.get('mig')}, and nvidia-smi says {row['mig.mode.current']}"
        total = int(row["memory.total"])
        if abs(gpus["memory_mib"] - total) > _TOLERANCE * total:
            yield f"GPU {index}: {gpus['memory_mib']} MiB instead of {total}"
    if gpus["model"] not in {row["name"].replace(" ", "-") for row in rows}:
        yield f"model {gpus['model']}"


@pytest.mark.gpu
@pytest.mark.slow
def test_the_gpus_of_this_machine_are_read_as_nvidia_smi_tells_them_and_left_as_they_are(tmp_path):
    if reason := missing_gpus():
        pytest.skip(f"GPU: {reason}")
    before = nvidia_smi(_SETTINGS)

    command = (sys.executable, "-m", "gpuplan")
    read = (*command, "snapshot", "--from", "nvml", "--watch", "3s", "-o", "host.json")
    subprocess.run(read, cwd=tmp_path, check=True)
    subprocess.run((*command, "validate", "host.json"), cwd=tmp_path, check=True)
    subprocess.run((*command, "plan", "host.json", "--solver", "greedy"), cwd=tmp_path, check=True)

    document = json.loads((tmp_path / "host.json").read_text())
    (node,) = document["cluster"]["nodes"]
    assert not list(contradictions(nvidia_smi(_FIELDS), node))
    assert {each["index"] for each in document["measured"]} <= {int(row["index"]) for row in before}
    assert document["measured"]
    assert nvidia_smi(_SETTINGS) == before


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, 0),
        ({"uuid": "GPU-other"}, 1),
        ({"mig.mode.current": "Enabled"}, 1),
        ({"memory.total": "40960"}, 1),
    ],
)
def test_the_comparison_finds_what_differs(machine, read, wrong, told):
    """On the machine that is not there."""
    (node,) = read().snapshot.model_dump(mode="json", by_alias=True)["cluster"]["nodes"]
    rows = [
        {
            "index": str(each["index"]),
            "uuid": each["uuid"],
            "name": "NVIDIA H100 80GB HBM3",
            "memory.total": "81559",
            "mig.mode.current": "Disabled",
        }
        for each in node["gpus"]["details"]
    ]
    rows[3] |= wrong

    assert len(list(contradictions(rows, node))) == told
