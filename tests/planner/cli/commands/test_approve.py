"""Plans that need signatures: refused, signed, applied; and each way in which they are not."""

from __future__ import annotations

import json
import pwd
import shutil
from types import SimpleNamespace

import pytest

from gpuplan.planner.apply.audit_log import verify_log
from gpuplan.planner.approval.ssh_signatures import fingerprint
from tests.support.builders.approval_keys import public_bytes, public_line, write_key

APPLY = ("apply", "plan.json", "--executor", "simulated", "--auto-approve")
POLICY = ".gpuplan/policy.yaml"


def policy(**more):
    approvers = {"ann": public_line(1), "bob": public_line(2)}
    return json.dumps({"approval": {"most_changes": 0, "signatures": 2, "approvers": approvers} | more})


@pytest.fixture
def gpuplan_here(gpuplan, plan_file, quickstart, tmp_path, monkeypatch):
    """A plan, a cluster with a policy in force, and keys 1 to 3, in the working directory."""
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="carl"))
    assert gpuplan("simulated", "create", quickstart).code == 0
    assert gpuplan("plan", quickstart, "--solver", "greedy", "-o", plan_file).code == 0
    (tmp_path / POLICY).write_text(policy())
    for number in (1, 2, 3):
        write_key(tmp_path / f"key{number}", number)
    return gpuplan


def listed(gpuplan):
    return json.loads(gpuplan("approve", "plan.json", "--list", "--json").out)


def test_a_plan_is_applied_once_two_approvers_have_signed(gpuplan_here, tmp_path):
    refused = gpuplan_here(*APPLY)
    assert (refused.code, refused.out) == (25, "")
    assert "needs 2 signatures and has none" in refused.err
    assert verify_log(tmp_path / ".gpuplan/audit.jsonl").records == ()

    for number in (1, 2):
        assert gpuplan_here(*APPLY).code == 25
        done = gpuplan_here("approve", "plan.json", "--key", f"key{number}")
        assert (done.code, done.err) == (0, "")
    assert "Approved: 2 of 2 signatures." in done.out
    assert listed(gpuplan_here)["approved"]

    assert gpuplan_here(*APPLY).code == 0
    begin, *others = verify_log(tmp_path / ".gpuplan/audit.jsonl").records
    assert begin.approvers == tuple(
        f"{name} {fingerprint(public_bytes(number))}" for name, number in (("ann", 1), ("bob", 2))
    )
    assert not any(record.approvers for record in others)
    assert "approved by ann SHA256:" in gpuplan_here("audit", "show").out


def test_the_command_of_the_refusal_can_be_run_where_the_cluster_is_not(gpuplan_here, tmp_path, monkeypatch):
    command = gpuplan_here(*APPLY).err.splitlines()[-1].split("gpuplan ")[1]
    cluster = command.split("'")[1]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("plan.json", "key1"):
        shutil.copy2(tmp_path / name, elsewhere)
    monkeypatch.chdir(elsewhere)

    words = ("approve", "plan.json", "--cluster", cluster)
    assert "No policy is in force here" in gpuplan_here(*words, "--key", "key1").out
    assert "signed" in gpuplan_here(*words, "--list").out
    assert gpuplan_here("approve", "plan.json", "--list").code == 2

    monkeypatch.chdir(tmp_path)
    shutil.copy2(elsewhere / "plan.json.approvals", tmp_path)
    assert [each["approver"] for each in listed(gpuplan_here)["signatures"]] == ["ann"]


def test_the_policy_inside_the_plan_is_not_the_one_that_counts(gpuplan_here, quickstart, tmp_path):
    lax, strict = tmp_path / "lax.yaml", tmp_path / "strict.yaml"
    lax.write_text("{}")
    strict.write_text(policy())
    assert gpuplan_here("plan", quickstart, "--policy", lax, "-o", "plan.json").code == 0
    assert gpuplan_here(*APPLY).code == 25
    # Another policy on the command line is refused, the one in force may be named.
    refused = gpuplan_here(*APPLY, "--policy", lax)
    assert refused.code == 1
    assert POLICY in refused.err
    assert gpuplan_here(*APPLY, "--policy", POLICY).code == 25

    (tmp_path / POLICY).unlink()
    assert gpuplan_here(*APPLY, "--policy", strict).code == 25
    assert gpuplan_here("plan", quickstart, "--policy", strict, "-o", "plan.json").code == 0
    # Without a policy in force no approvers are known.
    # So it is on Slurm, before anything is asked of it.
    for executor in ("simulated", "slurm"):
        refused = gpuplan_here("apply", "plan.json", "--executor", executor, "--auto-approve")
        assert (refused.code, refused.out) == (25, "")
        assert f"give --policy, or write {tmp_path / POLICY}." in refused.err
    assert gpuplan_here(*APPLY, "--policy", lax).code == 0


def test_signatures_that_would_not_count_are_not_added(gpuplan_here, tmp_path):
    refused = gpuplan_here("approve", "plan.json", "--key", "key3")
    assert (refused.code, "of no approver" in refused.err) == (1, True)
    assert fingerprint(public_bytes(3)) in refused.err

    (tmp_path / POLICY).write_text(policy(approvers={"carl": public_line(1), "bob": public_line(2)}))
    refused = gpuplan_here("approve", "plan.json", "--key", "key1")
    assert (refused.code, "carl made the plan" in refused.err) == (1, True)
    assert not (tmp_path / "plan.json.approvals").exists()


def test_a_key_taken_from_the_policy_approves_no_more(gpuplan_here, tmp_path):
    for number in (1, 2):
        assert gpuplan_here("approve", "plan.json", "--key", f"key{number}").code == 0
    (tmp_path / POLICY).write_text(policy(revoked=[public_line(2)]))
    refused = gpuplan_here(*APPLY)

    assert (refused.code, "the key of bob is revoked" in " ".join(refused.err.split())) == (25, True)
    assert listed(gpuplan_here)["missing"] == 1


def test_signatures_do_not_move_to_another_plan_or_cluster(gpuplan_here, quickstart, tmp_path):
    for number in (1, 2):
        assert gpuplan_here("approve", "plan.json", "--key", f"key{number}").code == 0
    signatures = (tmp_path / "plan.json.approvals").read_bytes()
    shutil.rmtree(tmp_path / ".gpuplan")
    assert gpuplan_here("simulated", "create", quickstart).code == 0
    (tmp_path / POLICY).write_text(policy())
    refused = gpuplan_here(*APPLY)
    assert (refused.code, refused.err.count("for another cluster")) == (25, 2)

    (tmp_path / "new.json.approvals").write_bytes(signatures)
    assert gpuplan_here("plan", quickstart, "--seed", "7", "-o", "new.json").code == 0
    refused = gpuplan_here("apply", "new.json", *APPLY[2:])
    assert (refused.code, refused.err.count("of another plan")) == (25, 2)


def test_tampered_signatures_and_files_are_told(gpuplan_here, tmp_path):
    assert gpuplan_here("approve", "plan.json", "--key", "key1").code == 0
    path = tmp_path / "plan.json.approvals"
    text = path.read_text()
    line = text.index("U1NIU0lH") + 150
    path.write_text(text[:line] + ("A" if text[line] != "A" else "B") + text[line + 1 :])
    refused = gpuplan_here(*APPLY)
    assert (refused.code, "does not count" in refused.err) == (25, True)
    path.write_text(text[:-9])
    assert gpuplan_here(*APPLY).code == 23
    assert gpuplan_here("approve", "plan.json", "--key", "key1").code == 23


def test_a_signature_of_something_else_is_tampering(gpuplan_here, tmp_path):
    (tmp_path / "s.sig").write_text("no signature")
    assert gpuplan_here("approve", "plan.json", "--signature", "s.sig").code == 23
    assert gpuplan_here("approve", "plan.json", "--signature", "none").code == 1


def test_a_cluster_that_does_not_exist_yet_cannot_be_approved_for(gpuplan_here, tmp_path):
    (tmp_path / ".gpuplan/simulated.db").unlink()
    refused = gpuplan_here(*APPLY)
    assert (refused.code, "simulated create" in refused.err) == (25, True)
    assert not (tmp_path / ".gpuplan/simulated.db").exists()


def test_one_thing_at_a_time(gpuplan_here):
    assert gpuplan_here("approve", "plan.json").code == 2
    assert gpuplan_here("approve", "plan.json", "--list", "--key", "key1").code == 2
    assert gpuplan_here("approve", "plan.json", "--list", "-o", "x").code == 2
    assert gpuplan_here("approve", "plan.json", "--statement", "-o", "plan.json").code == 1


def test_an_applied_plan_needs_no_approval_to_say_so(gpuplan_here, tmp_path):
    for number in (1, 2):
        gpuplan_here("approve", "plan.json", "--key", f"key{number}")
    assert gpuplan_here(*APPLY).code == 0
    (tmp_path / "plan.json.approvals").unlink()

    assert "already applied" in gpuplan_here(*APPLY).out


@pytest.mark.slow
def test_a_run_waits_for_what_the_policy_in_force_reserves(gpuplan_here, quickstart, tmp_path):
    run = ("run", quickstart, "--executor", "simulated", "--apply", "--epochs", "1", "--solver", "greedy")
    assert gpuplan_here(*run).code == 0
    (epoch,) = json.loads(gpuplan_here("history", "--json").out)["epochs"]
    assert (epoch["outcome"], epoch["done"]) == ("awaits_approval", 0)

    latest = ".gpuplan/plans/latest.json"
    for number in (1, 2):
        assert gpuplan_here("approve", latest, "--key", f"key{number}").code == 0
    assert gpuplan_here("apply", latest, *APPLY[2:]).code == 0
    (tmp_path / POLICY).write_text(policy(most_changes=100))
    assert gpuplan_here(*run).code == 0
    assert json.loads(gpuplan_here("history", "--json").out)["epochs"][-1]["outcome"] == "unchanged"
