"""Style of a text view: width, colour and character set."""

from __future__ import annotations

import shlex
import textwrap
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from gpuplan.planner.text_format import on_one_line

if TYPE_CHECKING:
    from collections.abc import Iterable


_ASCII: Final = str.maketrans(
    {"×": "x", "…": "...", "→": "->", "−": "-", "±": "*", "Σ": "sum", "≥": ">=", "·": ".", "°": ""}
)


class Tone(StrEnum):
    """What a colour means, with its ANSI code."""

    STRONG = "1"
    QUIET = "2"
    STOP = "31"
    START = "32"
    CARE = "33"


@dataclass(frozen=True, slots=True)
class Style:
    """Layout settings of a text view."""

    width: int
    colour: bool = False
    ascii_only: bool = False

    def clean(self, text: str) -> str:
        """The text on one line, without control characters, in ASCII if `ascii_only` is set."""
        shown = on_one_line(text)
        if self.ascii_only:
            shown = shown.translate(_ASCII).encode("ascii", "backslashreplace").decode()
        return shown

    def paint(self, text: str, tone: Tone) -> str:
        """The text in the colour of a tone, if colours are on."""
        return f"\x1b[{tone}m{text}\x1b[0m" if self.colour and text else text

    def cut(self, text: str, width: int) -> str:
        """The text, with its middle cut out if it is too wide: names often differ at their end."""
        if len(text) <= width:
            return text
        dots = self.clean("…")
        tail = max(0, (width - len(dots)) // 2)
        head = max(0, width - len(dots) - tail)
        return f"{text[:head]}{dots}{text[len(text) - tail :]}"[:width]

    def wrap(self, text: str, indent: int, *, hanging: int = 0) -> list[str]:
        """Wrap the text to the width, indented; lines after the first by `hanging` more columns."""
        return textwrap.wrap(
            self.clean(text),
            width=max(self.width, indent + hanging + 20),
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + hanging),
            break_on_hyphens=False,
        )

    def told(self, text: str, tone: Tone, *, hanging: int = 0) -> list[str]:
        """Wrap the text in the colour of a tone."""
        return [self.paint(line, tone) for line in self.wrap(text, 0, hanging=hanging)]

    def beside(self, label: str, text: str) -> list[str]:
        """Wrap the text to the right of a label on its first line."""
        first, *below = self.wrap(text, len(label))
        return [f"{label}{first.strip()}", *below]

    def flow(self, parts: Iterable[str], indent: int = 2) -> list[str]:
        """Place parts side by side without splitting any; lines after the first are indented."""
        lines = [""]
        for part in map(self.clean, parts):
            joined = f"{lines[-1]}  {part}" if lines[-1].strip() else f"{lines[-1]}{part}"
            if len(joined) <= self.width or not lines[-1].strip():
                lines[-1] = joined
            else:
                lines.append(" " * indent + part)
        return lines


def typed_path(path: str | None) -> str | None:
    """The path as typed in a shell; None if the file cannot be read again, as with standard input."""
    return None if path in (None, "-") else shlex.quote(path)


def paragraphs(sections: list[list[str]]) -> str:
    """Sections with an empty line between them."""
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"
