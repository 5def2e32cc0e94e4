"""`gpuplan run` and `history` as they are typed."""

from __future__ import annotations

import json
import shutil

import pytest

from gpuplan.planner.plan_file.plan_file import load_plan
from gpuplan.planner.sources import files
from gpuplan.planner.sources.files import load_snapshot

QUICK = ("--every", "1ms", "--solver", "greedy")


def test_a_run_saves_its_plans_and_history_shows_what_came_of_them(gpuplan, quickstart, tmp_path):
    ran = gpuplan("run", quickstart, *QUICK, "--log", "text", "--epochs", 2)

    assert (ran.code, ran.out) == (0, "")
    assert [line.split("event=")[1].split()[0] for line in ran.err.splitlines()] == [
        "began",
        "planned",
        "epoch",
        "planned",
        "epoch",
        "ended",
    ]
    assert load_plan(tmp_path / ".gpuplan" / "plans" / "latest.json").has_changes
    shown = gpuplan("history")
    assert shown.code == 0
    assert "2 epochs: 2 planned. 0 steps carried out." in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80


def test_history_as_json_is_one_document(gpuplan, quickstart):
    gpuplan("run", quickstart, *QUICK, "--epochs", 3, "--history", "h.db")

    shown = json.loads(gpuplan("history", "h.db", "--json", "-n", 2).out)

    assert [epoch["number"] for epoch in shown["epochs"]] == [2, 3]
    assert shown["epochs"][0]["outcome"] == "planned"


def test_a_run_applies_to_the_simulated_cluster_which_it_makes(gpuplan, quickstart, tmp_path):
    options = ("--executor", "simulated", "--state", "c.db", "--audit", "a.jsonl", "--metrics-file", "m.prom")
    ran = gpuplan("run", quickstart, *QUICK, *options, "--apply", "--log", "json", "--epochs", 2)

    told = [json.loads(line) for line in ran.err.splitlines()]
    assert ran.code == 0
    assert [each["outcome"] for each in told if each["event"] == "epoch"] == ["applied", "unchanged"]
    assert gpuplan("audit", "verify", "a.jsonl").code == 0
    assert "gpuplan_running_jobs 6.0\n" in (tmp_path / "m.prom").read_text()


def test_a_source_that_cannot_be_read_fails_epochs_but_not_the_run(gpuplan, quickstart, tmp_path):
    source = tmp_path / "copy"
    shutil.copytree(quickstart, source)
    (source / "jobs.yaml").write_text("jobs: [{name: x}]\n")

    ran = gpuplan("run", source, *QUICK, "--epochs", 2)

    assert ran.code == 1
    assert ran.err.count("outcome=failed") == 2
    assert "jobs.yaml:1" in "".join(gpuplan("history").out.split())


def test_a_broken_policy_is_refused_at_the_start(gpuplan, quickstart, tmp_path):
    (tmp_path / "p.yaml").write_text("budget: {time_limit: soon}\n")

    ran = gpuplan("run", quickstart, "--policy", "p.yaml", "--epochs", 1)

    assert ran.code == 24
    assert "p.yaml:1" in ran.err


def test_a_policy_file_that_goes_away_leaves_its_policy_in_force(gpuplan, quickstart, tmp_path, monkeypatch):
    source = tmp_path / "copy"
    shutil.copytree(quickstart, source)
    policy = source / "policy.yaml"
    policy.write_text("approval: {most_changes: 0}\n")

    def and_gone(place):
        policy.unlink(missing_ok=True)
        return load_snapshot(place)

    monkeypatch.setattr(files, "load_snapshot", and_gone)
    options = ("--epochs", 2, "--executor", "simulated", "--apply", "--metrics-file", "m.prom")
    ran = gpuplan("run", source, *QUICK, *options)

    told = json.loads(gpuplan("history", "--json").out)["epochs"]
    assert ran.err.count("event=policy_unreadable") == 2
    assert [epoch["outcome"] for epoch in told] == ["awaits_approval"] * 2
    assert "gpuplan_policy_file_ok 0.0\n" in (tmp_path / "m.prom").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("-",), "expected a directory or a file, found -"),
        (("x", "--apply"), "--apply needs a cluster: expected --executor"),
        (("x", "--advance", "1h"), "--advance needs a cluster: expected --executor"),
        (("x", "--state", "c.db"), "--state needs a cluster: expected --executor"),
        (
            ("x", "--executor", "simulated", "--drift", "strict"),
            "--drift is about applying: expected --apply",
        ),
        (("x", "--every", "0s"), "expected an interval above 0"),
        (("x", "--listen", "here"), "expected HOST:PORT such as 127.0.0.1:9464, found 'here'"),
        (("x", "--listen", ":99999"), "expected HOST:PORT"),
    ],
)
def test_contradictions_are_refused(gpuplan, options, told):
    ran = gpuplan("run", *options)

    assert ran.code == 2
    assert told in ran.err


def test_a_source_that_is_not_there_is_refused_at_the_start(gpuplan, quickstart):
    gpuplan("simulated", "create", quickstart)

    ran = gpuplan("run", "nowhere", "--executor", "simulated", "--apply", "--epochs", 1)

    assert ran.code == 24
    assert "nowhere: is not there" in ran.err
    named = gpuplan("run", "slurm", "--every", "5s", "--epochs", 1)
    assert named.code == 24
    assert "For that cluster: gpuplan run FOLDER --executor slurm, with the policy in FOLDER." in named.err


def test_a_simulated_cluster_of_another_source_is_refused_and_a_folder_with_a_policy_is_not(
    gpuplan, quickstart, tmp_path
):
    gpuplan("simulated", "create", quickstart)
    policy = tmp_path / "policy"
    policy.mkdir()
    (policy / "policy.yaml").write_text("solvers: []\n")
    how = ("--executor", "simulated", "--epochs", 1)

    other = gpuplan("run", quickstart.parent / "preempt-for-priority", *how)

    assert other.code == 1
    assert ".gpuplan/simulated.db is the simulated cluster of another source" in other.err
    assert gpuplan("run", policy, *how).code == 0
    assert gpuplan("run", quickstart, *how).code == 0


def test_an_empty_history_says_so_and_a_missing_one_is_an_error(gpuplan, quickstart):
    missing = gpuplan("history")

    assert missing.code == 1
    assert "there is no history at .gpuplan/history.db" in missing.err


def test_jobs_are_submitted_and_nodes_fail_and_return(gpuplan, quickstart, tmp_path):
    gpuplan("simulated", "create", quickstart)
    (tmp_path / "jobs.yaml").write_text(
        "jobs:\n- {name: new, queue: research, request: {gpus: 1}, submitted_at: 2026-11-20T12:00:00Z}\n"
    )

    submitted = gpuplan("simulated", "submit", "jobs.yaml")
    failed = gpuplan("simulated", "fail", "h100-1")
    returned = gpuplan("simulated", "return", "h100-1")

    assert submitted.out == "1 job submitted to .gpuplan/simulated.db.\n"
    assert failed.out == "Node h100-1 is down; 1 job waiting again.\n"
    assert returned.out == "Node h100-1 takes jobs again.\n"
    assert gpuplan("simulated", "submit", "jobs.yaml").code == 1
    assert gpuplan("simulated", "return", "h100-1").code == 1


def test_a_run_merges_what_hosts_tell(gpuplan, quickstart, tmp_path):
    (tmp_path / "hosts").mkdir()
    source = load_snapshot(str(quickstart))
    host = source.cluster.node_by_name["h100-1"]
    details = ({"index": 0, "uuid": "GPU-0", "healthy": False, "fault": "XID 79"},)
    reading = {
        "taken_at": "2026-11-20T12:00:00Z",
        "cluster": {"nodes": [{"name": host.name, "gpus": host.gpus.document() | {"details": details}}]},
        "queues": [],
        "jobs": [],
    }
    (tmp_path / "hosts" / "h100-1.json").write_text(json.dumps(reading))

    ran = gpuplan("run", quickstart, *QUICK, "--epochs", 1, "--merge", "hosts", "--log", "json")

    told = [json.loads(line) for line in ran.err.splitlines()]
    assert [each["note"][:26] for each in told if each["event"] == "host"] == ["node h100-1: GPU 0: XID 79"]
    plan = load_plan(tmp_path / ".gpuplan" / "plans" / "latest.json")
    assert not plan.snapshot.cluster.node_by_name["h100-1"].gpus.by_index[0].healthy
