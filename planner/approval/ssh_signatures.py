"""
Ed25519 signatures in the format of OpenSSH (PROTOCOL.sshsig), as `ssh-keygen -Y sign` makes and checks them.

The signed content names the namespace, so a signature that was made for another purpose, such as for Git,
does not count. `cryptography` does the arithmetic; it is imported when a key is used.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import struct
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NAMESPACE: Final = "gpuplan"
"""Namespace of the signatures: `ssh-keygen -Y sign -n gpuplan`."""

_MAGIC: Final = b"SSHSIG"
_VERSION: Final = 1
_ED25519: Final = b"ssh-ed25519"
_HASHES: Final = ("sha512", "sha256")
_ARMOR: Final = re.compile(r"\s*-----BEGIN SSH SIGNATURE-----(.*)-----END SSH SIGNATURE-----\s*", re.DOTALL)
# As ssh-keygen writes them.
_LINE: Final = 70
# Permissions of the group and of others, with which ssh refuses a key too.
_OPEN_TO_OTHERS: Final = 0o077


class BadSignatureError(PlannerError):
    """A text is no signature, or none of this message."""


def signer_of(message: bytes, signature: str) -> bytes:
    """
    The Ed25519 public key (32 bytes) that signed a message.

    Raises
    ------
    BadSignatureError
        The text is no OpenSSH signature with an Ed25519 key, for another namespace, or of another message.
    """
    _require_cryptography()
    key, namespace, algorithm, raw = _parsed(signature)
    if namespace != NAMESPACE.encode():
        found = namespace.decode(errors="backslashreplace")
        raise BadSignatureError(f"it is a signature for {found!r}, expected {NAMESPACE!r}")
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(key).verify(raw, _signed(message, algorithm))
    except (InvalidSignature, ValueError):
        raise BadSignatureError("the signature is not of this plan on this cluster, or was changed") from None
    return key


def sign(message: bytes, key: Ed25519PrivateKey) -> str:
    """Sign a message; the text is what `ssh-keygen -Y sign -n gpuplan` writes."""
    raw = key.sign(_signed(message, _HASHES[0]))
    public = key.public_key().public_bytes_raw()
    body = _MAGIC + struct.pack(">I", _VERSION)
    for part in (
        _string(_ED25519) + _string(public),
        NAMESPACE.encode(),
        b"",
        _HASHES[0].encode(),
        _string(_ED25519) + _string(raw),
    ):
        body += _string(part)
    text = base64.b64encode(body).decode()
    lines = (text[begin : begin + _LINE] for begin in range(0, len(text), _LINE))
    return "\n".join(("-----BEGIN SSH SIGNATURE-----", *lines, "-----END SSH SIGNATURE-----", ""))


def read_private_key(path: Path, ask: Callable[[str], str | None]) -> Ed25519PrivateKey:
    """
    Read an Ed25519 private key, in the format of OpenSSH or PEM.

    `ask` returns the passphrase for a prompt, or None if nothing can be asked.

    Raises
    ------
    PlannerError
        The file cannot be read, is open to other users, is no such key, or the passphrase is wrong.
    """
    _require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        content, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise PlannerError(f"key {path} cannot be read: {error.strerror}.\nGive a private key.") from None
    if mode & _OPEN_TO_OTHERS:
        raise PlannerError(
            f"key {path} is open to other users: expected mode 0600, found 0{mode & 0o777:o}.\n"
            f"Run `chmod 600 {path}`, and think of making a new key."
        )
    key = _loaded(content, path, ask)
    if not isinstance(key, Ed25519PrivateKey):
        raise PlannerError(
            f"key {path} is no Ed25519 key; expected one.\nMake one with `ssh-keygen -t ed25519`."
        )
    return key


def _loaded(content: bytes, path: Path, ask: Callable[[str], str | None]) -> object:
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        try:
            return _load(content, None)
        except (TypeError, ValueError) as error:
            # An encrypted key is the one or the other, by the version of cryptography.
            if "password" not in str(error).lower():
                raise
            passphrase = ask(f"Passphrase of {path}: ")
        if passphrase is None:
            raise PlannerError(
                f"key {path} has a passphrase, and there is no terminal to ask for it.\n"
                "Sign with an agent: `gpuplan approve PLAN --statement > FILE`, `ssh-keygen -Y sign "
                f"-n {NAMESPACE} -f {path} FILE`, `gpuplan approve PLAN --signature FILE.sig`."
            )
        return _load(content, passphrase.encode())
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        why = str(error).rstrip(".") or type(error).__name__
        raise PlannerError(
            f"key {path} cannot be used: {why}.\nGive an Ed25519 private key and its passphrase."
        ) from None


def _load(content: bytes, passphrase: bytes | None) -> object:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

    of_ssh = b"OPENSSH PRIVATE KEY" in content[:100]
    return (load_ssh_private_key if of_ssh else load_pem_private_key)(content, passphrase)


def _require_cryptography() -> None:
    if find_spec("cryptography") is None:
        raise PlannerError(
            "signatures need the extra `approve`, which is not installed: pip install 'gpuplan[approve]'."
        )


def openssh_line(key: bytes) -> str:
    """The public key as OpenSSH writes it: `ssh-ed25519 AAAA…`."""
    return f"ssh-ed25519 {base64.b64encode(_string(_ED25519) + _string(key)).decode()}"


def fingerprint(key: bytes) -> str:
    """The fingerprint of a public key, as `ssh-keygen -l` prints it: `SHA256:…`."""
    digest = hashlib.sha256(_string(_ED25519) + _string(key)).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def _signed(message: bytes, algorithm: str) -> bytes:
    """What is signed for a message: its hash with the namespace."""
    digest = hashlib.new(algorithm, message).digest()
    parts = (NAMESPACE.encode(), b"", algorithm.encode(), digest)
    return _MAGIC + b"".join(map(_string, parts))


def _string(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def _parsed(signature: str) -> tuple[bytes, bytes, str, bytes]:
    """Public key, namespace, hash algorithm and raw signature of an armored signature."""
    found = _ARMOR.fullmatch(signature)
    try:
        body = base64.b64decode("".join(found[1].split()), validate=True) if found else b""
    except (binascii.Error, ValueError):
        body = b""
    if not body.startswith(_MAGIC):
        raise BadSignatureError("it is no signature of `ssh-keygen -Y sign`")
    version = int.from_bytes(body[len(_MAGIC) : len(_MAGIC) + 4], "big")
    parts = _strings(body[len(_MAGIC) + 4 :], 5)
    if version != _VERSION or parts is None:
        raise BadSignatureError(f"it is no whole signature of version {_VERSION}")
    public, namespace, _, algorithm, signed = parts
    key, raw = _strings(public, 2), _strings(signed, 2)
    if key is None or raw is None or key[0] != _ED25519 or raw[0] != _ED25519:
        raise BadSignatureError("it is not made with an Ed25519 key (`ssh-keygen -t ed25519`)")
    if (name := algorithm.decode(errors="replace")) not in _HASHES:
        raise BadSignatureError(f"it is made over the hash {name!r}, expected {' or '.join(_HASHES)}")
    return key[1], namespace, name, raw[1]


def _strings(content: bytes, count: int) -> list[bytes] | None:
    """The strings of which the content consists; None if it is not exactly so many."""
    parts: list[bytes] = []
    position = 0
    while position < len(content) and len(parts) < count:
        (length,) = struct.unpack(">I", content[position : position + 4].rjust(4, b"\xff"))
        parts.append(content[position + 4 : position + 4 + length])
        position += 4 + length
    return parts if position == len(content) and len(parts) == count else None
