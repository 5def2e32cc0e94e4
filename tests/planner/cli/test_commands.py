"""Each command as people and scripts use it: output, exit code, what it writes."""

from __future__ import annotations

import io
import json
import re
import sys
import time

import jsonschema
import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.models.gang import Gang
from gpuplan.planner.cli import main
from gpuplan.planner.io.atomic_write import hash_path
from gpuplan.planner.plan_file import plan_file as plan_module
from gpuplan.planner.plan_file.plan_file import load_plan
from gpuplan.planner.sources.files import load_snapshot, snapshot_text
from tests.support.builders.build import job, snapshot

COMMANDS = (
    "snapshot", "validate", "plan", "show", "diff", "explain", "verify", "apply",
    "schema", "search-log", "audit", "event", "simulated", "doctor",
)  # fmt: skip


def changes_in(plan_file):
    """The actions of a plan file that change the cluster."""
    actions = json.loads(plan_file.read_text())["actions"]
    return [action for action in actions if action["type"] not in ("keep", "wait")]


def test_help_lists_every_command_and_the_exit_codes(gpuplan):
    shown = gpuplan("--help")

    assert shown.code == 0
    assert all(re.search(rf"^  {command} ", shown.out, re.MULTILINE) for command in COMMANDS)
    assert "24 bad input" in " ".join(shown.out.split())


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(gpuplan, command):
    assert gpuplan(command, "--help").code == 0


def test_unknown_option_is_a_usage_error(gpuplan, quickstart):
    assert gpuplan("plan", quickstart, "--nonsense").code == 2
    assert gpuplan("plan", quickstart, "--time-limit", "soon").code == 2


def test_validate_counts_what_is_there(gpuplan, quickstart):
    shown = gpuplan("validate", quickstart)

    assert shown.out == "Valid: 6 nodes, 36 GPUs, 3 queues, 1 running and 9 waiting jobs.\n"


def test_all_problems_of_a_document_are_shown_with_exit_code_24(gpuplan, tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "taken_at: 2026-11-20T12:00:00Z\n"
        "cluster:\n- {name: n1, cpus: -1}\n"
        "queues:\n- {name: q}\n"
        "jobs:\n- {name: a, queue: p, submitted_at: 2026-11-20T12:00:00Z, colour: red}\n"
    )

    shown = gpuplan("validate", path)

    assert shown.code == 24
    assert shown.out == ""
    assert f"{path}:3: " in shown.err
    assert f"{path}:7: " in shown.err
    assert shown.err.endswith("problems in the input; nothing was done.\n")


@pytest.mark.slow
def test_plan_prints_saves_and_reports(gpuplan, quickstart, tmp_path):
    shown = gpuplan("plan", quickstart, "-o", "plan.json", "--report", "plan.html")

    assert shown.code == 0
    assert re.search(r"^Plan: \d+ to start", shown.out, re.MULTILINE)
    assert shown.out.endswith("Next: gpuplan apply plan.json --executor simulated\n")
    assert shown.err == ""
    assert json.loads((tmp_path / "plan.json").read_text())["format_version"] == "1.0"
    assert "</html>" in (tmp_path / "plan.html").read_text()


@pytest.mark.slow
def test_json_is_one_document_that_its_schema_describes(gpuplan, quickstart):
    document = json.loads(gpuplan("plan", quickstart, "--solver", "greedy", "--json").out)
    schema = json.loads(gpuplan("schema", "plan").out)

    jsonschema.validate(document, schema)
    contract = {
        "format_version", "plan_id", "base", "solution", "actions", "placements", "nodes", "waiting",
        "metrics",
    }  # fmt: skip
    assert contract <= document.keys()
    assert {"from", "to", "reason"} <= (document["solution"]["fallback"] or {"from", "to", "reason"})
    assert {
        "status",
        "solver",
        "objective",
        "bound",
        "gap",
        "greedy_objective",
        "terms",
        "seconds",
        "fallback",
    } <= (document["solution"].keys())


def test_detailed_exitcode_is_10_with_changes_and_0_without(gpuplan, quickstart):
    assert gpuplan("plan", quickstart, "-o", "plan.json", "--detailed-exitcode").code == 10
    gpuplan("apply", "plan.json", "--executor", "simulated", "--auto-approve")
    gpuplan("snapshot", "--from", "simulated", "-o", "after.json")

    again = gpuplan("plan", "after.json", "--detailed-exitcode")

    assert again.code == 0
    assert "No changes" in again.out


def test_time_limit_too_short_for_a_solver_leaves_greedys_plan_and_says_so(gpuplan, quickstart):
    shown = gpuplan("plan", quickstart, "--time-limit", "0s", "--json")

    solution = json.loads(shown.out)["solution"]
    assert shown.code == 0
    assert solution["solver"] == "greedy"
    # Greedy already reaches the bound here, or the reason is told.
    assert solution["gap"] == 0 or "no time left" in solution["fallback"]["reason"]


def test_the_time_limit_counts_from_when_the_process_began(monkeypatch, quickstart, tmp_path):
    monkeypatch.chdir(tmp_path)
    command = ["gpuplan", "plan", str(quickstart), "--time-limit", "5s", "-o", "plan.json"]
    monkeypatch.setattr(sys, "argv", command)

    with pytest.raises(SystemExit):
        main(process_began=time.monotonic() - 60)

    solution = load_plan("plan.json").solution
    assert solution.phases["read"] >= 60
    assert solution.seconds >= 60
    assert solution.solver == "greedy"


def test_the_time_limit_of_standard_input_counts_from_its_first_byte(monkeypatch, quickstart, tmp_path):
    monkeypatch.chdir(tmp_path)
    content = snapshot_text(load_snapshot(str(quickstart))).encode()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))
    monkeypatch.setattr(sys, "argv", ["gpuplan", "plan", "-", "-o", "plan.json"])

    with pytest.raises(SystemExit):
        main(process_began=time.monotonic() - 60)

    assert load_plan("plan.json").solution.phases["read"] < 60


def test_a_plan_may_be_written_and_read_compressed(gpuplan, quickstart):
    planned = gpuplan("plan", quickstart, "--solver", "greedy", "-o", "plan.json.gz")

    assert gpuplan("show", "plan.json.gz").out == planned.out
    assert gpuplan("explain", "plan.json.gz", "train-ranker").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan.json", "x.plan", "x.yaml", "plan.gz"])
@pytest.mark.parametrize("dense", [False, True])
def test_a_plan_file_is_known_by_its_content(gpuplan, quickstart, tmp_path, name, dense):
    gpuplan("plan", quickstart, "--solver", "greedy", "-o", name)
    if dense and not name.endswith(".gz"):
        (tmp_path / name).write_text(json.dumps(json.loads((tmp_path / name).read_text())))

    explained = gpuplan("explain", name, "train-ranker")

    assert (explained.code, explained.err) == (0, "")
    assert gpuplan("explain", name, "train-ranker", "--seed", "1").code == 2


def test_the_next_step_is_shown_only_for_a_plan_that_was_written(gpuplan, quickstart, monkeypatch):
    def full(*_, **__):
        raise PlannerError("plan.json cannot be written: No space left on device.")

    args = ("plan", quickstart, "--solver", "greedy", "-o", "plan.json")
    assert "gpuplan apply plan.json" in gpuplan(*args).out

    monkeypatch.setattr(plan_module, "write_atomically", full)
    failed = gpuplan(*args)

    assert failed.code == 1
    assert "train-ranker" in failed.out
    assert "plan.json" not in failed.out


def test_no_hash_of_a_large_plan_stays_beside_a_small_one(gpuplan, quickstart, monkeypatch, tmp_path):
    args = ("plan", quickstart, "--solver", "greedy", "-o", "plan.json")
    monkeypatch.setattr(plan_module, "MANY_ACTIONS", 0)
    gpuplan(*args)
    assert hash_path(tmp_path / "plan.json").exists()

    monkeypatch.setattr(plan_module, "MANY_ACTIONS", 1_000)
    gpuplan(*args)

    assert sorted(path.name for path in tmp_path.iterdir()) == ["plan.json"]


@pytest.mark.parametrize("large", [False, True])
def test_show_and_explain_answer_about_one_job(gpuplan, quickstart, monkeypatch, large, tmp_path):
    monkeypatch.setattr(plan_module, "MANY_ACTIONS", 0 if large else 1_000)
    gpuplan("plan", quickstart, "--solver", "greedy", "-o", "plan.json")
    assert hash_path(tmp_path / "plan.json").exists() == large

    shown = json.loads(gpuplan("show", "plan.json", "train-base", "--json").out)
    text = gpuplan("show", "plan.json", "job/train-base").out
    waits = gpuplan("show", "plan.json", "render")
    explained = json.loads(gpuplan("explain", "plan.json", "train-base", "--json").out)
    unknown = gpuplan("show", "plan.json", "train-basis")

    assert [action["type"] for action in shown["actions"]] == [explained["action"]] == ["start"]
    assert [each["node"] for each in shown["placement"]["replicas"]] == explained["nodes"]
    assert "start  train-base" in text
    assert (waits.code, "wait  render" in waits.out) == (0, True)
    assert (unknown.code, unknown.out) == (24, "")
    assert "'train-base'" in unknown.err


def test_a_tampered_plan_is_refused_for_one_job_too(gpuplan, quickstart, monkeypatch, tmp_path):
    monkeypatch.setattr(plan_module, "MANY_ACTIONS", 0)
    gpuplan("plan", quickstart, "--solver", "greedy", "-o", "plan.json")
    path = tmp_path / "plan.json"
    path.write_text(path.read_text().replace('"user"', '"User"', 1))

    assert gpuplan("show", "plan.json", "train-base").code == 23
    assert gpuplan("explain", "plan.json", "train-base").code == 23


def test_show_prints_the_plan_as_it_was_reviewed(gpuplan, quickstart, plan_file):
    planned = gpuplan("plan", quickstart, "--solver", "greedy", "-o", plan_file)

    assert gpuplan("show", plan_file).out == planned.out


def test_diff_names_what_changes(gpuplan, plan_file, quickstart):
    shown = gpuplan("diff", plan_file)

    assert "train-base" in shown.out
    assert json.loads(gpuplan("diff", plan_file, "--json").out)
    assert gpuplan("diff", plan_file, quickstart).code == 0


def test_a_diff_too_ends_with_10_if_the_plan_has_changes(gpuplan, plan_file, quickstart):
    assert gpuplan("diff", plan_file, "--detailed-exitcode").code == 10
    assert gpuplan("diff", plan_file, quickstart, "--json", "--detailed-exitcode").code == 10
    gpuplan("apply", plan_file, "--executor", "simulated", "--auto-approve")
    gpuplan("snapshot", "--from", "simulated", "-o", "after.json")
    gpuplan("plan", "after.json", "-o", "nothing.json")

    assert gpuplan("diff", "nothing.json", "--detailed-exitcode").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--time-limit", "1s"),
        ("--solver", "auto"),
        ("--stop-gap", "1%"),
        ("--seed", "0"),
        ("--deterministic", None),
    ],
)
@pytest.mark.parametrize("command", [["diff"], ["explain", "distill"]], ids=["diff", "explain"])
def test_a_saved_plan_takes_no_options_of_planning(gpuplan, plan_file, command, option, value):
    shown = gpuplan(command[0], plan_file, *command[1:], option, *([] if value is None else [value]))

    assert shown.code == 2
    assert f"{option} is for" in shown.err
    assert "a saved plan is not planned again." in " ".join(shown.err.split())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("synthetic", "--profile", "p.yaml", "--nodes", "n.csv"), "--nodes is for --from openb."),
        (("openb", "--nodes", "n.csv", "--pods", "p.csv", "--seed", "1"), "--seed is for --from synthetic."),
        (("synthetic", "--state", "s.db"), "--state is for --from local or simulated."),
    ],
)
def test_options_of_other_sources_are_refused(gpuplan, arguments, told):
    shown = gpuplan("snapshot", "--from", *arguments)

    assert shown.code == 2
    assert told in shown.err


def test_verify_agrees_with_the_plan(gpuplan, plan_file, quickstart):
    shown = gpuplan("verify", plan_file, quickstart)

    assert shown.code == 0
    assert "break no rule; objective 10,482 as stated." in shown.out


def test_verify_finds_what_a_changed_cluster_breaks(gpuplan, plan_file, quickstart, tmp_path):
    cordoned = tmp_path / "changed"
    cordoned.mkdir()
    for file in quickstart.glob("*.yaml"):
        text = file.read_text().replace("- name: h100-2\n", "- name: h100-2\n      cordoned: true\n")
        (cordoned / file.name).write_text(text)

    shown = gpuplan("verify", plan_file, cordoned)

    assert shown.code == 1
    assert "selection: job train-base" in shown.out
    differs = f"`gpuplan diff {plan_file} {cordoned}` shows how"
    assert f"breaks a rule in 1 place: SOURCE has changed since the plan; {differs}." in shown.out


def test_verify_tells_a_snapshot_that_is_older_than_the_plan(gpuplan, plan_file, quickstart, tmp_path):
    world = json.loads(gpuplan("show", plan_file, "--json").out)["snapshot"]
    older = tmp_path / "older.json"
    older.write_text(json.dumps({**world, "taken_at": "2026-11-20T11:59:59Z"}))

    shown = gpuplan("verify", plan_file, older)

    assert shown.code == 0
    says = "SOURCE of 2026-11-20T11:59:59Z is older than the plan's snapshot of 2026-11-20T12:00:00Z; 0 of"
    assert shown.out.startswith(f"Verified: {says} its 5 actions")


def test_a_diff_says_that_all_of_a_plan_is_done(gpuplan, plan_file, tmp_path):
    gpuplan("apply", plan_file, "--executor", "simulated", "--auto-approve")
    after = tmp_path / "after.json"
    gpuplan("snapshot", "--from", "simulated", "-o", after)

    shown = gpuplan("diff", plan_file, after)

    assert "; all of the plan is done\n" in shown.out
    assert "apply would" not in shown.out
    assert json.loads(gpuplan("diff", plan_file, after, "--json").out)["carried_out"] is True


@pytest.mark.parametrize("command", ["verify", "diff"])
def test_a_snapshot_of_another_cluster_is_refused(gpuplan, plan_file, quickstart, command):
    shown = gpuplan(command, plan_file, quickstart.parent / "mig-repack")

    assert shown.code == 21
    assert "is for another cluster" in shown.err
    assert shown.out == ""


def test_edited_plan_is_refused_with_exit_code_23(gpuplan, plan_file):
    plan_file.write_text(plan_file.read_text().replace('"seed": 0', '"seed": 1'))

    shown = gpuplan("show", plan_file)

    assert shown.code == 23
    assert str(plan_file) in shown.err


def test_apply_asks_and_takes_only_yes(gpuplan, plan_file, monkeypatch, tmp_path):
    monkeypatch.setattr("builtins.input", lambda _: "y")
    refused = gpuplan("apply", plan_file, "--executor", "simulated")
    monkeypatch.setattr("builtins.input", lambda _: "yes")
    accepted = gpuplan("apply", plan_file, "--executor", "simulated")

    assert refused.code == 1
    assert "nothing was changed" in refused.err
    assert accepted.code == 0
    starts = len(changes_in(plan_file))
    assert f"Apply complete: {starts} starts. Audit log: .gpuplan/audit.jsonl" in accepted.out


def test_end_of_input_is_a_no(gpuplan, plan_file, monkeypatch):
    def end_of_input(_):
        raise EOFError

    monkeypatch.setattr("builtins.input", end_of_input)

    assert gpuplan("apply", plan_file, "--executor", "simulated").code == 1


def test_stale_plan_is_refused_with_exit_code_21(gpuplan, plan_file, quickstart):
    gpuplan("simulated", "create", quickstart)
    gpuplan("simulated", "advance", "48h")

    shown = gpuplan("apply", plan_file, "--executor", "simulated", "--auto-approve")

    assert shown.code == 21
    assert "stale" in shown.err
    assert "gpuplan plan" in shown.err


def test_audit_is_shown_and_verified_and_an_edit_is_exit_code_23(gpuplan, plan_file, tmp_path):
    gpuplan("apply", plan_file, "--executor", "simulated", "--auto-approve")
    log = tmp_path / ".gpuplan" / "audit.jsonl"

    # Intent and outcome of each change, between begin and end.
    records = 2 * len(changes_in(plan_file)) + 2
    assert gpuplan("audit", "verify").out.startswith(f"Verified: {records} records")
    assert len(gpuplan("audit", "show").out.splitlines()) == records
    log.write_text(log.read_text().replace("start ", "stop "))
    assert gpuplan("audit", "verify").code == 23


def test_missing_files_are_bad_input(gpuplan):
    for arguments in (("plan", "nowhere"), ("show", "nowhere.json"), ("validate", "nowhere")):
        shown = gpuplan(*arguments)
        assert shown.code == 24, arguments
        assert "nowhere" in shown.err


@pytest.mark.slow
def test_doctor_finds_this_installation_healthy(gpuplan):
    shown = gpuplan("doctor")

    assert shown.code == 0
    assert "FAIL" not in shown.out
    assert "solver milp" in shown.out


def test_plan_warns_of_speeds_by_size_that_it_does_not_use_and_names_only_some(gpuplan, tmp_path):
    jobs = [job(f"a{number}", gpus=1, replicas=2) for number in range(5)]
    table = Gang(min=2, max=2, scaling={1: 1, 2: 1.9})
    world = snapshot(jobs=[each.model_copy(update={"gang": table}) for each in jobs])
    (tmp_path / "world.json").write_text(snapshot_text(world))

    ran = gpuplan("plan", "world.json", "--solver", "greedy", "--json")

    assert ran.code == 0
    assert [line.startswith("Warning: job 'a") for line in ran.err.splitlines()] == [True] * 3 + [False]
    assert "2 other jobs" in ran.err
    assert json.loads(ran.out)
