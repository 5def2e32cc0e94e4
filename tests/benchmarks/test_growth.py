"""Growth: the input of a decade can be read back whole, and what could not be measured is shown as such."""

import pytest

from benchmarks import growth
from benchmarks.sizes import Size, made_up
from gpuplan.planner.sources.files import load_snapshot


def test_the_input_is_the_snapshot_however_many_files_it_has(monkeypatch, tmp_path):
    size = Size(8, 20, 2)
    monkeypatch.setitem(growth.DECADES, 64, size)
    monkeypatch.setattr(growth, "_JOBS_IN_A_FILE", 7)
    snapshot = made_up(size, 1)

    counts = growth.write_input(64, 1, tmp_path / "snapshot")

    assert len(list((tmp_path / "snapshot").iterdir())) > 2
    assert load_snapshot(str(tmp_path / "snapshot")).fingerprint() == snapshot.fingerprint()
    assert counts["running"] + counts["waiting"] == len(snapshot.jobs)


@pytest.mark.parametrize(
    ("bound", "objective", "missed"), [(100, 75, 0.25), (100, 100, 0.0), (None, 75, None), (-50, -50, None)]
)
def test_what_a_plan_misses_is_a_share_of_what_could_be_gained(bound, objective, missed):
    record = {"bound": bound, "objective": objective, "unchanged": 0 if (bound or 0) >= 0 else -50}

    assert growth.missed(record) == missed


def test_a_stage_that_failed_has_no_figures():
    record = {
        "gpus": 1_000,
        "nodes": 125,
        "running": 2,
        "waiting": 3,
        "input_bytes": 10**6,
        "bound": None,
        "command": None,
        "failed": "more than 8 GiB",
        "costs": {"read": {"cpu": 1.0, "wall": 2.0, "peak_mib": 90.0}},
    }

    text = growth.tables([record])
    cells = text.splitlines()[2].strip("| ").split(" | ")

    assert "1.00 / 2.00" in cells
    assert cells.count("–") == len(growth.STAGES) + 1
    assert "more than 8 GiB" in text
