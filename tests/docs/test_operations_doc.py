"""What docs/operations.md shows is read and printed by gpuplan."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from gpuplan.models.plan.actions import ACTIONS, ActionKind
from gpuplan.models.plan.reason import ReasonCode
from gpuplan.models.policy.policy import Policy
from gpuplan.models.policy.settings import ApplyPolicy, HorizonPolicy
from tests.support.output.markdown_blocks import fenced
from tests.support.output.run_command import run_command

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_policies_shown_look_ahead_or_say_how_plans_are_applied():
    shown = [Policy.model_validate(yaml.safe_load(text)) for text in fenced(TEXT, "yaml")]

    applying = [policy.apply for policy in shown if "apply" in policy.model_fields_set]
    assert [(each.model_fields_set, each.timeouts) for each in applying] == [
        (set(ApplyPolicy.model_fields), {ActionKind.PREEMPT: 20 * 60})
    ]
    # Except for the timeout and the slots it shows the defaults.
    assert applying[0].model_copy(update={"timeouts": {}, "checkpoints": {}}) == ApplyPolicy()
    about = [policy for policy in shown if not {"apply", "disruption"} & policy.model_fields_set]
    assert all(policy.horizon.slots > 1 for policy in about)


def test_the_timeouts_told_are_those_of_the_actions():
    chapter = " ".join(TEXT.split("## Actions that last")[1].split("\n## ")[0].split())
    minutes = {kind.value: info.timeout // 60 for kind, info in ACTIONS.items()}

    short = [kind for kind, each in minutes.items() if each == 1]
    assert sorted(short) == ["cordon", "drain", "release", "uncordon"]
    assert (
        "Defaults are 1 minute for `release`, `cordon`, `uncordon` and `drain`, 30 minutes for `scale_up`, "
        "15 minutes" in chapter
    )
    assert minutes.pop("scale_up") == 30
    assert {each for kind, each in minutes.items() if kind not in short} == {15}


def test_every_key_of_the_horizon_is_explained():
    fields = HorizonPolicy.model_fields
    keys = {field.alias or name for name, field in fields.items()} - {"backfill"}
    of_backfill = {f"backfill.{name}" for name in fields["backfill"].annotation.model_fields} - {
        "backfill.max_delay"
    }

    table = "".join(line for line in TEXT.splitlines(keepends=True) if line.startswith("| `"))
    assert all(f"`{key}`" in table for key in keys | of_backfill | {"max_delay"})


def test_every_reason_to_wait_is_said_to_pass_or_to_stay():
    chapter = TEXT.split("## Why a job waits")[1].split("\n## ")[0]

    codes = list(ReasonCode)
    waiting = codes[codes.index(ReasonCode.HELD) :]
    assert [code for code in waiting if f"`{code.value}`" not in chapter] == []


def test_commands_print_what_is_shown():
    shown = fenced(TEXT, "console")

    assert shown
    for text in shown:
        prompt, expected = text.split("\n", 1)
        command = prompt.removeprefix("$ gpuplan ").split()
        done = run_command(command, folder=ROOT)
        assert done.stdout == expected, done.stderr


def test_a_rollback_prints_what_is_shown(tmp_path):
    chapter = TEXT.split("## Rolling back")[1].split("\n## ")[0]
    (commands,), (expected,) = fenced(chapter, "sh"), fenced(chapter, "text rollback")
    shown = []
    for line in commands.splitlines():
        words = line.split()[1:]
        words = [str(ROOT / word) if word.startswith("scenarios/") else word for word in words]
        done = run_command([*words, *["--auto-approve"] * (words[0] == "apply")], folder=tmp_path)
        assert done.returncode == 0, done.stderr
        shown.append(done.stdout)

    assert shown[2] == expected
    assert shown[3].startswith("Apply complete: 3 starts and 2 preemptions.")


def test_the_loop_runs_from_an_empty_folder(tmp_path):
    chapter = TEXT.split("## The loop")[1].split("\n## ")[0]
    commands = [line.partition("#")[0].split() for line in re.findall(r"^gpuplan .*$", chapter, re.MULTILINE)]

    assert len(commands) == 7
    for _, *words in commands:
        approved = ["--auto-approve"] if words[0] == "apply" else []
        command = [*words, *approved]
        done = run_command(command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "Apply complete: 3 starts" in done.stdout
