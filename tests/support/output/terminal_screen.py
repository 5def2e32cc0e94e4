"""A terminal for tests: what a person would see of the bytes that a program writes."""

from __future__ import annotations

import re

_PIECE = re.compile(r"\x1b\[(\??\d*)([A-Za-z])|(\r)|(\n)|([^\x1b\r\n]+)")


def screen(written):
    """Lines on a terminal of unlimited size after it got a text; raises on what it does not know."""
    lines, row, column = [""], 0, 0
    at = 0
    for piece in _PIECE.finditer(written):
        assert piece.start() == at, written[at : at + 10]
        at = piece.end()
        number, command, home, down, text = piece.groups()
        if text:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + text + line[column + len(text) :]
            column += len(text)
        elif home:
            column = 0
        elif down:
            row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
        elif command == "A":
            row -= int(number)
        elif command == "K" and number == "2":
            lines[row] = ""
        else:
            assert command in "mhl", command
    assert at == len(written), written[at:]
    return [line.rstrip() for line in lines]


def blank(written):
    """True if nothing of a text is left to be seen, and the cursor is."""
    return not any(screen(written)) and written.count("\x1b[?25l") == written.count("\x1b[?25h")
