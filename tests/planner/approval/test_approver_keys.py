"""Lines of allowed_signers mean here what they mean to ssh-keygen."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.models.policy.approval import Approval
from gpuplan.planner.approval.approver_keys import approver_keys, read_allowed_signers
from gpuplan.planner.approval.ssh_signatures import NAMESPACE, sign
from tests.support.builders.approval_keys import (
    needs_ssh_keygen,
    private_key,
    public_bytes,
    public_line,
    ssh_keygen,
)

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
KEY = public_line(1)

LINES = {
    f"ann {KEY}": True,
    f"ann {KEY} a comment with words": True,
    f"ann\t{KEY}": True,
    f'"ann" {KEY}': True,
    f'ann,ann@example.org namespaces="{NAMESPACE}" {KEY}': True,
    f'ann namespaces="git,{NAMESPACE}" {KEY}': True,
    f'ann namespaces="g*n" {KEY}': True,
    f'ann namespaces="git" {KEY}': False,
    f'ann NAMESPACES="{NAMESPACE}" {KEY}': True,
    f'ann valid-after="20261101",valid-before="20261201Z" {KEY}': True,
    f'ann valid-before="20261123115959Z" {KEY}': False,
    f'ann valid-before="202611231201Z",namespaces="{NAMESPACE}" {KEY}': True,
    f'ann valid-after="202611231201Z" {KEY}': False,
    f'ann valid-after="20261123115900Z" {KEY}': True,
    f"# ann {KEY}": False,
    f"ann {public_line(2)}": False,
}
"""Whether a line lets a signature by the first key count at noon."""


def counts(tmp_path, line):
    path = tmp_path / "signers"
    path.write_text(f"{line}\n")
    keys = [each for each in read_allowed_signers(path) if each.key == public_bytes(1)]
    return any(not each.refusal(NOW) for each in keys)


@pytest.mark.parametrize("line", LINES)
def test_a_line_counts_as_expected(tmp_path, line):
    assert counts(tmp_path, line) == LINES[line]


@needs_ssh_keygen
@pytest.mark.parametrize("line", LINES)
def test_ssh_keygen_agrees(tmp_path, line):
    (tmp_path / "signers").write_text(f"{line}\n")
    (tmp_path / "signature").write_text(sign(b"text", private_key(1)))
    found = ssh_keygen(
        *("-Y", "verify", "-n", NAMESPACE, "-I", "ann", "-O", "verify-time=20261123120000Z"),
        *("-f", tmp_path / "signers", "-s", tmp_path / "signature"),
        stdin=b"text",
    )
    assert (found.returncode == 0) == LINES[line], found.stderr


def test_all_broken_lines_are_told_with_their_numbers(tmp_path):
    path = tmp_path / "signers"
    path.write_text(
        f'ann {KEY}\n\nann\n* {KEY}\nann valid-before="soon" {KEY}\nann colour="red" {KEY}\n'
        f'ann valid-before="20261301" {KEY}\nann ssh-ed25519 AAAA\nann valid-after="" {KEY}\n'
    )
    with pytest.raises(BadInputError) as caught:
        read_allowed_signers(path)

    places = [problem.place.rpartition(":")[2] for problem in caught.value.problems]
    assert places == ["3", "4", "5", "6", "7", "8", "9"]


def test_keys_of_other_types_and_authorities_are_left_out(tmp_path):
    path = tmp_path / "signers"
    path.write_text(
        f"*@example.org cert-authority {KEY}\nann ssh-rsa AAAAB3NzaC1yc2E=\n"
        f"ann ecdsa-sha2-nistp256 AAAAE2Vj=\nann sk-ssh-ed25519@openssh.com AAAAGnNr=\n"
    )
    assert read_allowed_signers(path) == ()


def test_a_missing_file_is_an_error_and_a_relative_path_begins_at_the_policy(tmp_path):
    rules = Approval(allowed_signers="signers", approvers={"bob": public_line(2)})
    with pytest.raises(BadInputError, match="cannot be read"):
        approver_keys(rules, tmp_path)
    (tmp_path / "signers").write_text(f"ann {KEY}\n")

    assert [each.name for each in approver_keys(rules, tmp_path)] == ["bob", "ann"]
