"""Signatures that OpenSSH makes are understood here, and the other way round; none can be changed."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.models.errors import PlannerError
from gpuplan.planner.approval import ssh_signatures
from gpuplan.planner.approval.ssh_signatures import (
    NAMESPACE,
    BadSignatureError,
    fingerprint,
    openssh_line,
    read_private_key,
    sign,
    signer_of,
)
from tests.support.builders.approval_keys import (
    needs_ssh_keygen,
    private_key,
    public_bytes,
    public_line,
    ssh_keygen,
    write_key,
)

MESSAGE = b"gpuplan approval 1\nplan 7c1e\n"
MADE = sign(MESSAGE, private_key(1))
BODY = base64.b64decode("".join(MADE.splitlines()[1:-1]))


def armored(body):
    text = base64.b64encode(body).decode()
    return f"-----BEGIN SSH SIGNATURE-----\n{text}\n-----END SSH SIGNATURE-----\n"


def test_the_signer_of_a_message_is_found():
    assert signer_of(MESSAGE, MADE) == public_bytes(1)


def test_no_byte_of_a_signature_can_be_changed():
    """A changed key or hash is no valid signature; the reserved field is part of what is read."""
    for position in range(len(BODY)):
        changed = bytearray(BODY)
        changed[position] ^= 1
        with pytest.raises(BadSignatureError):
            signer_of(MESSAGE, armored(bytes(changed)))
        with pytest.raises(BadSignatureError):
            signer_of(MESSAGE, armored(BODY[:position]))
    with pytest.raises(BadSignatureError):
        signer_of(MESSAGE, armored(BODY + b"\0"))


@given(st.binary())
def test_no_other_message_is_signed(message):
    if message != MESSAGE:
        with pytest.raises(BadSignatureError):
            signer_of(message, MADE)


@given(st.one_of(st.text(), st.binary().map(lambda end: armored(b"SSHSIG\0\0\0\1" + end))))
def test_any_text_is_refused_with_a_reason(text):
    with pytest.raises(BadSignatureError, match=r"it is|the signature"):
        signer_of(MESSAGE, text)


@needs_ssh_keygen
def test_openssh_accepts_what_is_signed_here(tmp_path):
    (tmp_path / "signature").write_text(MADE)
    (tmp_path / "signers").write_text(f"ann {public_line(1)}\n")
    check = ("-Y", "verify", "-n", NAMESPACE, "-f", tmp_path / "signers", "-s", tmp_path / "signature", "-I")

    assert ssh_keygen(*check, "ann", stdin=MESSAGE).returncode == 0
    assert ssh_keygen(*check, "bob", stdin=MESSAGE).returncode != 0
    assert ssh_keygen(*check, "ann", stdin=MESSAGE + b"x").returncode != 0


@needs_ssh_keygen
@pytest.mark.parametrize("digest", ["sha512", "sha256"])
def test_what_openssh_signs_is_accepted_here(tmp_path, digest):
    assert ssh_keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key").returncode == 0
    signed = ssh_keygen(
        *("-Y", "sign", "-n", NAMESPACE, "-O", f"hashalg={digest}", "-f", tmp_path / "key"), stdin=MESSAGE
    )

    key = signer_of(MESSAGE, signed.stdout.decode())
    assert (tmp_path / "key.pub").read_text().startswith(openssh_line(key))
    listed = ssh_keygen("-l", "-f", tmp_path / "key.pub").stdout.decode()
    assert listed.split()[1] == fingerprint(key)


@pytest.mark.slow
@needs_ssh_keygen
def test_signatures_for_another_purpose_or_by_another_type_of_key_are_told_apart(tmp_path):
    for kind in ("ed25519", "rsa"):
        ssh_keygen("-q", "-t", kind, "-N", "", "-f", tmp_path / kind)
    git = ssh_keygen("-Y", "sign", "-n", "git", "-f", tmp_path / "ed25519", stdin=MESSAGE).stdout.decode()
    rsa = ssh_keygen("-Y", "sign", "-n", NAMESPACE, "-f", tmp_path / "rsa", stdin=MESSAGE).stdout.decode()

    with pytest.raises(BadSignatureError, match="'git'"):
        signer_of(MESSAGE, git)
    with pytest.raises(BadSignatureError, match="Ed25519"):
        signer_of(MESSAGE, rsa)
    with pytest.raises(PlannerError, match="no Ed25519 key"):
        read_private_key(tmp_path / "rsa", lambda _: None)


@pytest.mark.slow
@pytest.mark.parametrize("form", [PrivateFormat.OpenSSH, PrivateFormat.PKCS8])
@pytest.mark.parametrize("passphrase", [None, "open sesame"])
def test_private_keys_are_read_in_both_formats_also_encrypted(tmp_path, form, passphrase):
    path = write_key(tmp_path / "key", 3, passphrase=passphrase, form=form)
    asked = []

    key = read_private_key(path, lambda prompt: asked.append(prompt) or passphrase)

    assert key.private_bytes_raw() == private_key(3).private_bytes_raw()
    assert len(asked) == bool(passphrase)
    if passphrase:
        with pytest.raises(PlannerError, match="cannot be used"):
            read_private_key(path, lambda _: "wrong")
        with pytest.raises(PlannerError, match="no terminal"):
            read_private_key(path, lambda _: None)


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = write_key(tmp_path / "key", 3)
    for mode in (0o640, 0o604, 0o660):
        path.chmod(mode)
        with pytest.raises(PlannerError, match=f"found 0{mode:o}"):
            read_private_key(path, lambda _: None)


def test_files_that_are_no_keys_are_refused(tmp_path):
    for content in (b"", b"text", public_line(1).encode(), b"-----BEGIN OPENSSH PRIVATE KEY-----\nxx\n"):
        path = tmp_path / "file"
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(content)
        with pytest.raises(PlannerError, match="cannot be used"):
            read_private_key(path, lambda _: None)
    with pytest.raises(PlannerError, match="cannot be read"):
        read_private_key(tmp_path / "none", lambda _: None)


def test_without_the_extra_it_is_named(monkeypatch):
    monkeypatch.setattr(ssh_signatures, "find_spec", lambda _: None)
    with pytest.raises(PlannerError, match="gpuplan\\[approve\\]"):
        signer_of(MESSAGE, MADE)
