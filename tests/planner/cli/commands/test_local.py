"""`gpuplan local` and `--executor local`, as an operator types them."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pynvml
import pytest

from gpuplan.planner.sources.nvml import nvml
from tests.support.nvml.standin import Machine


@pytest.fixture
def machine(tmp_path, monkeypatch):
    monkeypatch.setattr(nvml.socket, "gethostname", lambda: "gpu01")
    return Machine(tmp_path / "machine", monkeypatch, gpus=4)


def test_from_submit_to_the_end(gpuplan, machine, monkeypatch):
    monkeypatch.setenv("PASSWORD", "hunter2")
    ran = gpuplan(
        "local",
        "submit",
        "--gpus",
        2,
        "--time",
        "1h",
        "-c",
        2,
        "--mem",
        "1Gi",
        "--",
        "sh",
        "-c",
        "echo $PASSWORD",
    )
    assert (ran.code, ran.out) == (0, "Queued job job-1.\n")
    assert gpuplan("snapshot", "--from", "local", "-o", "now.json").code == 0
    assert gpuplan("plan", "now.json", "-o", "plan.json").code == 0
    assert gpuplan("apply", "plan.json", "--executor", "local", "--auto-approve").code == 0
    end = time.monotonic() + 120
    while json.loads(gpuplan("local", "list", "--json").out)["jobs"][0]["state"] != "succeeded":
        assert time.monotonic() < end
        time.sleep(0.05)
    assert Path(".gpuplan/host/ended/1/output.txt").read_text() == "hunter2\n"
    told = [each for each in Path().rglob("*") if each.is_file() and each.name != "output.txt"]
    assert not [each for each in told if b"hunter2" in each.read_bytes()]


def test_a_run_applies_what_it_plans(gpuplan, machine, quickstart):
    gpuplan("local", "submit", "-J", "a", "-G", 1, "--state", "queue", "--", "sleep", "0.2")
    ran = gpuplan(
        "run",
        quickstart,
        "--executor",
        "local",
        "--state",
        "queue",
        "--apply",
        "--epochs",
        1,
        "--every",
        "1s",
    )
    assert ran.code == 0, ran.err
    assert (
        json.loads(gpuplan("local", "list", "--state", "queue", "--json").out)["jobs"][0]["state"]
        != "waiting"
    )
    gpuplan("local", "cancel", "a", "--state", "queue")


@pytest.mark.slow
def test_at_eighty_columns_a_list_is_whole(gpuplan, machine, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    gpuplan("local", "submit", "-J", "training", "-G", 3, "--", "sleep", "60")
    gpuplan("local", "submit", "-J", "single", "-G", 1, "--", "sleep", "60")
    gpuplan("snapshot", "--from", "local", "-o", "now.json")
    gpuplan("plan", "now.json", "-o", "plan.json")
    assert gpuplan("apply", "plan.json", "--executor", "local", "--auto-approve").code == 0
    shown = gpuplan("local", "list").out
    gpuplan("local", "cancel", "training")
    gpuplan("local", "cancel", "single")

    assert "…" not in shown
    assert re.search(
        r"^  training  running  3 GPUs    GPUs \d-\d  (\d{4}-\d\d-\d\d )?\d\d:\d\d(:\d\d)?$",
        shown,
        re.MULTILINE,
    )
    assert re.search(r"^  single    running  1 GPU     GPU \d ", shown, re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("local", "submit"), 2, "COMMAND"),
        (("local", "submit", "-G", "1", "--mig", "3g.40gb", "x"), 2, "found both"),
        (("local", "submit", "--signal", "NONE@3", "x"), 2, "USR1@60"),
        (("local", "submit", "-J", "a b", "x"), 2, "name"),
        (("local", "submit", "--mem", "lots", "x"), 2, "memory_mib"),
        (("local", "cancel", "nothing"), 1, "local list"),
        (("snapshot", "--from", "nvml", "--allow-mig"), 2, "--from local"),
    ],
)
def test_bad_input_is_told(gpuplan, machine, words, code, said):
    ran = gpuplan(*words)
    assert (ran.code, said in ran.err) == (code, True), ran.err


def test_a_name_is_taken_once(gpuplan, machine):
    assert gpuplan("local", "submit", "-J", "a", "x").code == 0
    ran = gpuplan("local", "submit", "-J", "a", "x")
    assert (ran.code, "local cancel a" in ran.err) == (1, True)


def test_a_folder_that_others_can_read_is_refused(gpuplan, machine):
    Path("queue").mkdir(mode=0o755)
    Path("queue").chmod(0o755)
    ran = gpuplan("local", "submit", "--state", "queue", "x")
    assert (ran.code, "chmod 700" in ran.err) == (1, True)


def no_library(name, *_):
    raise OSError(name)


def test_without_a_driver_the_queue_takes_jobs_and_plans_say_what_is_missing(gpuplan, monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    assert gpuplan("local", "submit", "x").code == 0
    ran = gpuplan("snapshot", "--from", "local")
    assert (ran.code, "no driver" in ran.err) == (1, True)
