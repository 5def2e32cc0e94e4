"""Ed25519 keys of approvers, made from a number, and what they sign."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from gpuplan.planner.approval.approvals_file import PlanSignature, statement
from gpuplan.planner.approval.ssh_signatures import openssh_line, sign

SSH_KEYGEN = shutil.which("ssh-keygen")
needs_ssh_keygen = pytest.mark.skipif(SSH_KEYGEN is None, reason="ssh-keygen is not installed")


def private_key(number):
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)


def public_bytes(number):
    return private_key(number).public_key().public_bytes_raw()


def public_line(number):
    return openssh_line(public_bytes(number))


def write_key(path, number, *, passphrase=None, form=PrivateFormat.OpenSSH):
    """The private key in a file that only its owner may read."""
    locked = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    path.touch(mode=0o600)
    path.write_bytes(private_key(number).private_bytes(Encoding.PEM, form, locked))
    return path


def signature_of(plan, checksum, cluster, number, **changed):
    """A signature of a plan on a cluster, and what is changed in it afterwards."""
    text = sign(statement(plan, checksum, cluster), private_key(number))
    made = PlanSignature(cluster=cluster, checksum=checksum, key=public_line(number), signature=text)
    return made.model_copy(update=changed)


def ssh_keygen(*words, stdin=b""):
    return subprocess.run([SSH_KEYGEN, *map(str, words)], input=stdin, capture_output=True, check=False)
