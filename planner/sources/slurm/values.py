"""
Values in Slurm's JSON and texts: numbers in two shapes, flags, host lists, GRES and TRES.

Shapes: Slurm 22.05 writes numbers as they are and one state in lower case; from 23.02 on numbers are
`{"set": true, "infinite": false, "number": 4}` and states are lists in upper case. Syntax: man pages of
scontrol (hostlist expressions), gres.conf and sbatch (`--gres`, `--dependency`), Slurm 22.05 to 26.05.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from itertools import product
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


Record: TypeAlias = dict[str, Any]
"""One object of Slurm's JSON."""

_UNSET: Final = (0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF)
"""Slurm's NO_VAL and INFINITE of 32 and 64 bits, which 22.05 writes as they are."""

_GPU: Final = re.compile(
    r"^(?:gres[:/])?gpu(?::(?P<type>[^:=(]*[^\d:=(][^:=(]*|\d+(?=[:=]\d)))?(?:[:=](?P<count>\d+))?(?:\((?P<rest>.*)\))?$"
)
_INDICES: Final = re.compile(r"IDX:([\d,-]+)")
_COUNT: Final = re.compile(r"(\d+)([KMGTP]?)")
_AMOUNT: Final = re.compile(r"^(\d+(?:\.\d+)?)([KMGTP]?)$")
_MEBIBYTES: Final = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024**2, "P": 1024**3}
_KEPT: Final = 10_000
"""Texts kept with what they mean: fifty thousand jobs have few distinct ones."""

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:/@+-]*[A-Za-z0-9])?")
_LONGEST_NAME: Final = 200
"""Characters of a name; with a prefix such as that of a label it is at most 253."""

LONGEST_REASON: Final = 253
"""Characters of the reason why a job is held."""

_PART: Final = re.compile(r"\[([^\]]*)\]")
_FIELD: Final = re.compile(r"(?:^|\s)([A-Z][\w/]*)=(\S*)")
_NOTHING: Final = frozenset({"", "(null)", "N/A", "n/a", "NONE", "None"})
_CLOCK: Final = re.compile(r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)$")


@dataclass(frozen=True, slots=True)
class GpuGres:
    """GPUs of one type in a GRES text."""

    type: str
    """Empty if the text names no type."""
    count: int
    indices: tuple[int, ...] = ()
    """Indices on the node, where the text has them."""


def number(value: object) -> int | None:
    """A number in either shape; None if it is not set or infinite."""
    if type(value) is int and 0 <= value < _UNSET[0]:
        return value
    if isinstance(value, dict):
        return int(value["number"]) if value.get("set") and not value.get("infinite") else None
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = int(value)
    except ValueError:
        return None
    return None if found < 0 or found in _UNSET else found


def one_line(value: object) -> str:
    r"""
    Free text as snapshots keep it: one line of printable characters, of limited length.

    >>> one_line("fans\tfail\n  again"), one_line(None)
    ('fans fail again', '')
    """
    text = " ".join(str(value or "").split())
    return "".join(each if each.isprintable() else "?" for each in text)[:LONGEST_REASON]


def flags(value: object) -> frozenset[str]:
    """States and flags, in upper case, from a text or a list."""
    if not value:
        return frozenset()
    return _flags("+".join(map(str, value)) if isinstance(value, list) else str(value))


@lru_cache(maxsize=_KEPT)
def _flags(text: str) -> frozenset[str]:
    return frozenset(part for part in text.upper().split("+") if part)


def words(value: object) -> list[str]:
    """Parts of a comma-separated text, or of a list."""
    if not value:
        return []
    if isinstance(value, list):
        return [str(part) for part in value if str(part)]
    return list(_split(str(value)))


@lru_cache(maxsize=_KEPT)
def _split(text: str) -> tuple[str, ...]:
    return tuple(split_outside_brackets(text))


@lru_cache(maxsize=_KEPT)
def name_of(text: str) -> str:
    """
    A name as snapshots allow it: other characters become `-`, and a hash keeps two such names apart.

    >>> name_of("h100-80gb"), name_of("my account!")
    ('h100-80gb', 'my-account-c6935e')
    """
    if len(text) <= _LONGEST_NAME and _NAME.fullmatch(text):
        return text
    plain = re.sub(r"[^A-Za-z0-9]+", "-", text)[: _LONGEST_NAME - 20].strip("-")
    return f"{plain or 'name'}-{sha256(text.encode(errors='replace')).hexdigest()[:6]}"


def fields_of(line: str) -> dict[str, str]:
    """
    Fields `Name=value` of a line of `scontrol --oneliner`, without those that are not set.

    Of two fields with one name the first counts: free text, such as a comment, is last.

    >>> fields_of("PartitionName=low QoS=N/A TRES=cpu=64,node=1 Comment=Name x PartitionName=y")
    {'PartitionName': 'low', 'TRES': 'cpu=64,node=1', 'Comment': 'Name'}
    """
    found: dict[str, str] = {}
    for name, value in _FIELD.findall(line):
        found.setdefault(name, value)
    return {name: value for name, value in found.items() if value not in _NOTHING}


def minutes_of(text: str | None) -> int | None:
    """
    Minutes, rounded up, of `30`, `10:30`, `1:00:00` or `7-00:00:00`; None if there is no limit.

    >>> minutes_of("1-00:00:30"), minutes_of("90"), minutes_of("UNLIMITED")
    (1441, 90, None)
    """
    if text is None or text.isdigit():
        return int(text) if text else None
    if not (match := _CLOCK.match(text)):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (days * 24 + hours) * 60 + minutes + (seconds > 0)


def split_outside_brackets(text: str) -> list[str]:
    """Parts between commas that are in no brackets or parentheses."""
    if "[" not in text and "(" not in text:
        return [part.strip() for part in text.split(",") if part.strip()]
    parts, depth, begin = [], 0, 0
    for position, character in enumerate(text):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(text[begin:position])
            begin = position + 1
    return [part.strip() for part in (*parts, text[begin:]) if part.strip()]


def hosts(text: str | None) -> list[str]:
    """Names in a hostlist expression, such as `gpu[01-03,07],login`, in its order."""
    return [name for part in words(text) for name in _expanded(part)]


def _expanded(part: str) -> Iterator[str] | tuple[str]:
    if "[" not in part:
        return (part,)
    pieces = _PART.split(part)
    # Every other piece was in brackets.
    choices = [list(_numbers(piece)) if index % 2 else [piece] for index, piece in enumerate(pieces)]
    return ("".join(chosen) for chosen in product(*choices))


def _numbers(ranges: str) -> Iterator[str]:
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        for found in range(int(first), int(last or first) + 1):
            yield f"{found:0{len(first)}}"


def indices(text: str) -> tuple[int, ...]:
    """Numbers in a text such as `0-3,6`."""
    return tuple(int(found) for found in _numbers(text)) if text else ()


@lru_cache(maxsize=_KEPT)
def gpus_of(text: str | None) -> tuple[GpuGres, ...]:
    """
    GPUs in a GRES text.

    >>> gpus_of("gpu:h100:4(IDX:0-1,6-7),shard:8")
    (GpuGres(type='h100', count=4, indices=(0, 1, 6, 7)),)
    """
    found = []
    for part in words(text):
        if match := _GPU.match(part):
            listed = _INDICES.search(match["rest"] or "")
            count = 1 if match["count"] is None else int(match["count"])
            found.append(GpuGres(match["type"] or "", count, indices(listed[1]) if listed else ()))
    return tuple(found)


def other_gres(text: object) -> dict[str, int]:
    """
    Countable GRES other than GPUs, by name and type.

    >>> other_gres("gres/nvme:2,gpu:4,lic:big:3,link:2K")
    {'nvme': 2, 'lic:big': 3, 'link': 2048}
    """
    found: dict[str, int] = {}
    for part in words(text):
        plain = re.sub(r"^gres[:/]|\(.*\)$", "", part)
        if not _GPU.match(plain):
            name, _, count = plain.replace("=", ":").rpartition(":")
            match = _COUNT.fullmatch(count) if name else None
            amount = (name, int(match[1]) * 1024 ** " KMGTP".find(match[2] or " ")) if match else (plain, 1)
            named = name_of(amount[0])
            found[named] = found.get(named, 0) + amount[1]
    return found


@lru_cache(maxsize=_KEPT)
def tres_of(text: str | None) -> Mapping[str, int]:
    """
    Amounts in a TRES text, memory in MiB.

    >>> tres_of("cpu=16,mem=1.5G,node=2,gres/gpu=8")
    {'cpu': 16, 'mem': 1536, 'node': 2, 'gres/gpu': 8}
    """
    found = {}
    for part in words(text):
        name, _, amount = part.partition("=")
        if match := _AMOUNT.match(amount):
            found[name] = int(float(match[1]) * (_MEBIBYTES[match[2]] if name == "mem" else 1))
    return found
