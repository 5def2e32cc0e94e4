"""Approval: which plans are not applied before others than the planner have signed them, and how many."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from gpuplan.models.base import Noun
from gpuplan.models.plan.action_kinds import ChangingKind
from gpuplan.models.units import Count, Name

_KEY_BYTES: Final = 32
_OF_SSH: Final = b"\x00\x00\x00\x0bssh-ed25519\x00\x00\x00\x20"
"""Beginning of an OpenSSH public key: its type and the length of the key, each as RFC 4253 writes strings."""
_OF_PEM: Final = bytes.fromhex("302a300506032b6570032100")
"""Beginning of a SubjectPublicKeyInfo with an Ed25519 key, in DER (RFC 8410)."""
_PEM: Final = re.compile(r"-----BEGIN PUBLIC KEY-----(.*)-----END PUBLIC KEY-----", re.DOTALL)
_EXPECTED: Final = (
    "expected an Ed25519 public key: a line `ssh-ed25519 AAAA…`, a PEM block, or 32 bytes in base64"
)


def public_key_bytes(text: str) -> bytes:
    """
    The 32 bytes of an Ed25519 public key: an OpenSSH line, a PEM block, base64 or hexadecimal.

    Raises
    ------
    ValueError
        The text is none of these.
    """
    words = text.split()
    if words and words[0].startswith(("ssh-", "ecdsa-", "sk-")):
        if words[0] != "ssh-ed25519" or len(words) < 2:
            raise ValueError(f"{_EXPECTED}; found one of type {words[0]}")
        return _after(_OF_SSH, words[1])
    if found := _PEM.search(text):
        return _after(_OF_PEM, "".join(found[1].split()))
    if re.fullmatch(r"[0-9a-fA-F]{64}", text.strip()):
        return bytes.fromhex(text.strip())
    return _after(b"", text.strip())


def _after(beginning: bytes, encoded: str) -> bytes:
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{_EXPECTED}; found {encoded[:40]!r}") from None
    if not content.startswith(beginning) or len(content) != len(beginning) + _KEY_BYTES:
        raise ValueError(f"{_EXPECTED}; found {len(content)} bytes that are none")
    return content[len(beginning) :]


def _is_key(text: str) -> str:
    public_key_bytes(text)
    return text


PublicKeyText: TypeAlias = Annotated[str, StringConstraints(max_length=2000), AfterValidator(_is_key)]
"""An Ed25519 public key as text."""


class Approval(Noun):
    """
    Conditions under which a plan needs approval, and the signatures that give it.

    Without `signatures` only periodic runs wait: applying a plan by hand approves it.
    """

    needed_for: tuple[ChangingKind, ...] = ()
    """Types of action: a plan with one of them needs approval."""
    queues: tuple[Name, ...] = ()
    """
    Queues, with those below them: a plan that preempts, migrates, shrinks or grows a running job there needs
    approval.
    """
    most_changes: Count | None = None
    """A plan with more changes than this needs approval; absent means no limit."""
    most_preemptions: Count | None = None
    """A plan that preempts more running jobs than this needs approval; absent means no limit."""
    most_gpus: Count | None = None
    """A plan that changes the use of more GPUs than this needs approval; absent means no limit."""
    most_lost_gpu_hours: Count | None = None
    """A plan that loses more GPU-hours of unsaved work than this needs approval; absent means no limit."""
    signatures: Annotated[int, Field(strict=True, ge=0, le=100)] = 0
    """Number of approvers, other than the planner, that sign such a plan before it is applied."""
    approvers: dict[Name, PublicKeyText] = Field(default_factory=dict)
    """Ed25519 public keys by the name of the approver."""
    allowed_signers: str | None = None
    """
    File with further approvers in the format `allowed_signers` of ssh-keygen; a relative path begins at the
    folder of the policy.
    """
    revoked: tuple[PublicKeyText, ...] = ()
    """Public keys that no longer approve anything, wherever they are listed."""

    @property
    def has_conditions(self) -> bool:
        """True if a plan may need approval."""
        limits = (self.most_changes, self.most_preemptions, self.most_gpus, self.most_lost_gpu_hours)
        return bool(self.needed_for or self.queues) or any(limit is not None for limit in limits)

    @model_validator(mode="after")
    def _can_be_given(self) -> Approval:
        if not self.signatures:
            return self
        if not self.has_conditions:
            raise ValueError(
                "expected a condition beside signatures, found none: needed_for, queues, or a limit; "
                "with most_changes: 0 every plan needs approval"
            )
        if self.allowed_signers is None and len(self.approvers) < self.signatures:
            raise ValueError(
                f"expected at least as many approvers as signatures, {self.signatures}, "
                f"found {len(self.approvers)}"
            )
        return self
