"""What docs/approval.md shows is what gpuplan and OpenSSH do."""

from __future__ import annotations

import pwd
import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from gpuplan.models.policy.approval import Approval
from gpuplan.models.policy.policy import Policy
from tests.support.builders.approval_keys import needs_ssh_keygen, ssh_keygen
from tests.support.output.markdown_blocks import fenced
from tests.support.output.run_command import run_command

TEXT = (Path(__file__).parents[2] / "docs" / "approval.md").read_text(encoding="utf-8")


def same_everywhere(text):
    """Without what differs from cluster to cluster, key to key and host to host."""
    text = re.sub(r"simulated [0-9a-f]{16}", "simulated #", text)
    text = re.sub(r"SHA256:[\w+/]{43}", "SHA256:#", text)
    return re.sub(r"made by carl@\S+", "made by carl@#", text)


def test_the_policy_shown_is_a_policy_with_every_knob_of_approval():
    (shown,) = fenced(TEXT, "yaml")
    policy = Policy.model_validate(yaml.safe_load(shown))

    assert policy.approval.model_fields_set == set(Approval.model_fields)


@needs_ssh_keygen
def test_a_plan_is_signed_and_applied_as_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="carl"))
    monkeypatch.chdir(tmp_path)
    (rules,) = fenced(TEXT, "text")
    begin, *rest = fenced(TEXT, "console")
    carry_out(begin, tmp_path)
    (tmp_path / ".gpuplan/policy.yaml").write_text(rules)
    (tmp_path / ".gpuplan/allowed_signers").write_text(
        "".join(
            f'{name}@example.org namespaces="gpuplan" {(tmp_path / f"{name}.pub").read_text()}'
            for name in ("ann", "bob")
        )
    )
    for block in rest:
        carry_out(block, tmp_path)


def carry_out(block, folder):
    """Run the commands of a block; what is shown of their output must be all of it."""
    for step in block.split("$ ")[1:]:
        command, _, expected = step.partition("\n")
        program, *words = shlex.split(command)
        if program == "ssh-keygen":
            assert ssh_keygen(*words).returncode == 0
            continue
        done = run_command(words, folder=folder)
        if expected:
            assert same_everywhere(done.stdout + done.stderr) == same_everywhere(expected)


@pytest.mark.parametrize("code", ["25"])
def test_the_exit_code_is_that_of_the_plan_format(code):
    page = (Path(__file__).parents[2] / "docs" / "plan-format.md").read_text(encoding="utf-8")

    assert f"exit code {code}" in TEXT
    assert f"| {code} | the plan lacks signatures" in page
