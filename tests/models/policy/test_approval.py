"""Keys of approvers in each form, and sections of a policy that no plan could satisfy."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuplan.models.policy.approval import Approval, public_key_bytes
from gpuplan.models.policy.policy import Policy

# The key of RFC 8032, section 7.1, test 1.
KEY = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
LINE = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAINdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea ann@example.org"
PEM = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----
"""
FORMS = (LINE, LINE.rpartition(" ")[0], PEM, base64.b64encode(KEY).decode(), KEY.hex(), KEY.hex().upper())


@pytest.mark.parametrize("text", FORMS)
def test_a_key_is_read_in_each_form(text):
    assert public_key_bytes(text) == KEY


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        LINE.replace("ssh-ed25519", "ssh-rsa"),
        LINE.replace("AAAAC3", "AAAAC4"),
        "ssh-ed25519 " + base64.b64encode(KEY).decode(),
        PEM.replace("MCow", "MCoy"),
        base64.b64encode(KEY[:31]).decode(),
        KEY.hex()[:-1],
        "sk-ssh-ed25519@openssh.com AAAA",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_what_is_no_ed25519_public_key_is_refused(text):
    with pytest.raises(ValueError, match="expected an Ed25519 public key"):
        public_key_bytes(text)


@given(st.text())
def test_any_text_is_a_key_or_refused(text):
    with suppress(ValueError):
        assert len(public_key_bytes(text)) == 32


def test_sections_that_no_plan_could_satisfy_are_refused():
    for wrong in (
        {"signatures": 1, "approvers": {"ann": LINE}},
        {"signatures": 1, "most_changes": 0},
        {"signatures": 2, "most_changes": 0, "approvers": {"ann": LINE}},
        {"signatures": 1, "most_changes": 0, "approvers": {"ann": "no key"}},
        {"needed_for": ["dance"]},
        {"signatures": -1},
    ):
        with pytest.raises(ValidationError):
            Approval.model_validate(wrong)
    Approval.model_validate({"signatures": 9, "most_changes": 0, "allowed_signers": "signers"})


def test_the_default_is_not_part_of_a_policy_document():
    assert Policy().document() == {}
    assert Policy(approval=Approval()).fingerprint() == Policy().fingerprint()
