"""Keys of the approvers under a policy: those it names, and those of an `allowed_signers` file of OpenSSH."""

from __future__ import annotations

import fnmatch
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.policy.approval import public_key_bytes
from gpuplan.models.units import print_timestamp
from gpuplan.planner.approval.ssh_signatures import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuplan.models.policy.approval import Approval

_LINE: Final = re.compile(
    r"""(?P<principals>"[^"]*"|[^\s"]+)[ \t]+
        (?:(?P<options>(?:[A-Za-z-]+(?:="[^"]*")?)(?:,[A-Za-z-]+(?:="[^"]*")?)*)[ \t]+)??
        (?P<type>(?:ssh|ecdsa|sk|rsa)-[^\s=",]+)[ \t]+(?P<key>[A-Za-z0-9+/=]+)(?:[ \t].*)?""",
    re.VERBOSE,
)
_OPTION: Final = re.compile(r'([A-Za-z-]+)(?:="([^"]*)")?(?:,|$)')
_TIMES: Final = ("valid-after", "valid-before")
_KNOWN: Final = ("cert-authority", "namespaces", *_TIMES)
_FORMATS: Final = {8: "%Y%m%d", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_SAMPLE: Final = 'ann@example.org namespaces="gpuplan" ssh-ed25519 AAAA…'


@dataclass(frozen=True, slots=True)
class ApproverKey:
    """One key of an approver."""

    name: str
    key: bytes
    """Ed25519 public key, 32 bytes."""
    valid_after: datetime | None = None
    valid_before: datetime | None = None
    others: frozenset[str] = frozenset()
    """Further names of the same approver."""

    def refusal(self, now: datetime) -> str:
        """Why the key does not count now; empty if it does."""
        if self.valid_before is not None and now >= self.valid_before:
            return f"the key of {self.name} has expired: valid before {print_timestamp(self.valid_before)}"
        if self.valid_after is not None and now < self.valid_after:
            return f"the key of {self.name} is not valid yet: after {print_timestamp(self.valid_after)}"
        return ""


def approver_keys(rules: Approval, folder: Path) -> tuple[ApproverKey, ...]:
    """
    All keys that may approve; `allowed_signers` begins at `folder`.

    Raises
    ------
    BadInputError
        With every problem of the `allowed_signers` file, with its line.
    """
    named = tuple(ApproverKey(name, public_key_bytes(text)) for name, text in sorted(rules.approvers.items()))
    if rules.allowed_signers is None:
        return named
    return (*named, *read_allowed_signers(folder / Path(rules.allowed_signers).expanduser()))


def read_allowed_signers(path: Path) -> tuple[ApproverKey, ...]:
    """
    The Ed25519 keys of a file in the format that ssh-keygen documents under ALLOWED SIGNERS.

    Keys of other types, certificate authorities, and keys for other namespaces are not of use here and are
    left out. An approver is named by the first of its principals, so these are names and no patterns.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise _refused(path, [(None, f"the allowed signers cannot be read: {error.strerror}.")]) from None
    except UnicodeDecodeError:
        raise _refused(path, [(None, "expected allowed signers, found a file that is no text.")]) from None
    keys: list[ApproverKey] = []
    problems: list[tuple[int | None, str]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            keys += _keys(line.strip())
        except ValueError as error:
            problems.append((number, f"{error}."))
    if problems:
        raise _refused(path, problems)
    return tuple(keys)


def _refused(path: Path, problems: Iterable[tuple[int | None, str]]) -> BadInputError:
    return BadInputError(
        tuple(InputProblem(f"{path}:{number}" if number else str(path), what) for number, what in problems)
    )


def _keys(line: str) -> Iterator[ApproverKey]:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError(f"expected principals, options and a public key, such as `{_SAMPLE}`")
    options = _options(found["options"] or "")
    after, before = (_time(options[name]) if name in options else None for name in _TIMES)
    spaces = options.get("namespaces", "*").split(",")
    if found["type"] != "ssh-ed25519" or "cert-authority" in options:
        return
    key = public_key_bytes(f"{found['type']} {found['key']}")
    if not any(fnmatch.fnmatchcase(NAMESPACE, pattern) for pattern in spaces):
        return
    names = [name for name in found["principals"].strip('"').split(",") if name]
    if not names or any(set(name) & set("*?!") for name in names):
        raise ValueError(
            f"expected the names of one approver, found {found['principals']}: signatures are counted by name"
        )
    yield ApproverKey(names[0], key, after, before, frozenset(names[1:]))


def _options(text: str) -> dict[str, str]:
    options: dict[str, str] = {}
    for name, value in _OPTION.findall(text):
        if name.lower() not in _KNOWN:
            raise ValueError(f"expected options among {', '.join(_KNOWN)}, found {name}")
        options[name.lower()] = value
    return options


def _time(text: str) -> datetime:
    """`YYYYMMDD[HHMM[SS]]`, in UTC with a Z at the end and else in local time, as ssh-keygen reads it."""
    digits = text.removesuffix("Z")
    form = _FORMATS.get(len(digits)) if digits.isascii() and digits.isdigit() else None
    with suppress(ValueError):
        if form is not None:
            naive = datetime.strptime(digits, form)  # noqa: DTZ007 - the next line gives it its time zone
            return naive.replace(tzinfo=UTC) if text.endswith("Z") else naive.astimezone()
    raise ValueError(f"expected a time YYYYMMDD[HHMM[SS]][Z], found {text!r}")
