"""Compressed node names in the hostlist format of Slurm: `h100-[03-06,09],login`."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LAST_NUMBER: Final = re.compile(r"(.*?)(\d{1,15})(\D*)", re.ASCII)


def hostlist(names: Iterable[str]) -> str:
    """All names, each once; names that differ only in their last number share one bracket."""
    plain: list[str] = []
    numbers: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name in sorted(set(names)):
        match = _LAST_NUMBER.fullmatch(name)
        if match is None:
            plain.append(name)
        else:
            numbers[match[1], match[3]].append(match[2])
    folded = [
        f"{prefix}{_bracket(list(_ranges(found)))}{suffix}" for (prefix, suffix), found in numbers.items()
    ]
    return ",".join(sorted([*plain, *folded]))


def _bracket(ranges: list[str]) -> str:
    return ranges[0] if len(ranges) == 1 and "-" not in ranges[0] else f"[{','.join(ranges)}]"


def _ranges(digits: list[str]) -> Iterator[str]:
    """`03`, `04`, `05`, `9` as `03-05`, `9`; numbers with leading zeros are grouped by width."""
    padded = {len(text) for text in digits if text[0] == "0" and len(text) > 1}
    by_width: dict[int, list[int]] = defaultdict(list)
    for text in digits:
        by_width[len(text) if len(text) in padded else 0].append(int(text))
    for width, found in sorted(by_width.items()):
        numbers = sorted(found)
        first = 0
        for position, number in enumerate(numbers):
            if position + 1 < len(numbers) and numbers[position + 1] == number + 1:
                continue
            run = sorted({numbers[first], number})
            yield "-".join(f"{end:0{width}d}" if width else str(end) for end in run)
            first = position + 1
