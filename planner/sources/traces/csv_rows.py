"""
CSV files as rows of text cells with line numbers, and the problems found in them.

For traces with cells of plain numbers and names. Quoting is not supported, so a line of the file is a row.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from gpuplan.models.errors import BadInputError, InputProblem, truncated_names
from gpuplan.models.units import Name
from gpuplan.planner.sources.documents.documents import decode_utf_8, read_bytes
from gpuplan.planner.sources.documents.tokens import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    import pandas as pd

_MOST_PER_COLUMN: Final = 20
"""Problems listed per column; a wrong column has a problem in every line, and a full list would not help."""

_LINE: Final = "line"
_LONGEST_SHOWN: Final = 60
_DIGITS = re.compile(r"[0-9]{1,18}")
_NAME: Final = TypeAdapter[str](Name)
_Made = TypeVar("_Made")


def is_name(text: str) -> bool:
    """True if the text is a valid name of a node, a job or a GPU model."""
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True


class CsvFile:
    """One CSV file with a header; all its problems are collected in `problems`."""

    def __init__(self, path: Path, *, what: str) -> None:
        self.path = path
        self.problems: list[InputProblem] = []
        self._what = what
        """The expected kind of file, for the hint in messages."""
        self._told: Counter[str] = Counter()
        self._ragged: dict[int, int] = {}
        """Number of cells of the lines that differ from the header, by line."""
        self._cells = self._read()
        self.columns: frozenset[str] = frozenset(() if self._cells is None else self._cells.columns)

    def rows(self, *required: str) -> Iterator[CsvRow]:
        """The rows in the order of the file; none if a required column is missing."""
        if self._cells is None:
            return
        if missing := [column for column in required if column not in self.columns]:
            noun = "column" if len(missing) == 1 else "columns"
            self._refuse(
                1,
                f"has no {noun} {truncated_names(missing)}; found "
                f"{truncated_names(filter(None, self.columns)) or 'none'}.\n"
                f"  Give {self._what}, with its header line.",
            )
            return
        for line, width in self._ragged.items():
            expected = f"expected {len(self.columns)}, as the header"
            self.complain(line, _LINE, f"has {width} cells; {expected}.")
        columns = [str(column) for column in self._cells.columns]
        for line, *cells in self._cells.itertuples(name=None):
            yield CsvRow(self, line, dict(zip(columns, cells, strict=True)))

    def complain(self, line: int, column: str, message: str) -> None:
        """Add a problem of one cell, unless its column already has the maximum number."""
        self._told[column] += 1
        if self._told[column] <= _MOST_PER_COLUMN:
            self._refuse(line, message)

    def all_problems(self) -> tuple[InputProblem, ...]:
        """The problems found, with a count of those beyond the maximum per column."""
        return (
            *self.problems,
            *(
                InputProblem(str(self.path), f"{told - _MOST_PER_COLUMN} more problems of '{column}'.")
                for column, told in sorted(self._told.items())
                if told > _MOST_PER_COLUMN
            ),
        )

    def read(self, made: Iterable[_Made]) -> tuple[_Made, ...]:
        """What is made of the rows, if the file has no problem."""
        found = tuple(made)
        if problems := self.all_problems():
            raise BadInputError(problems)
        return found

    def _refuse(self, line: int | None, message: str) -> None:
        place = str(self.path) if line is None else f"{self.path}:{line}"
        self.problems.append(InputProblem(place, message))

    def _read(self) -> pd.DataFrame | None:
        """Cells by column, indexed by line number; None if the file cannot be read."""
        import pandas as pd  # noqa: PLC0415 - takes half a second, only needed for traces

        text = self._text()
        if text is None:
            return None
        lines = pd.Series(text.split("\n"), dtype="str")
        lines.index = pd.RangeIndex(1, len(lines) + 1, name=_LINE)
        header = [name.strip() for name in lines.iloc[0].split(",")]
        if repeated := sorted(name for name, count in Counter(header).items() if count > 1):
            self._refuse(1, f"has column {truncated_names(repeated)} twice; expected each column once.")
            return None
        body = lines.iloc[1:]
        body = body[body.str.strip() != ""]
        widths = body.str.count(",") + 1
        # Reported only if the header has the required columns; without a header every line would be wrong.
        self._ragged = {int(str(line)): width for line, width in widths[widths != len(header)].items()}
        cells = body[widths == len(header)].str.split(",", expand=True)
        if cells.empty:
            return pd.DataFrame(columns=header, dtype="str")
        cells.columns = pd.Index(header)
        return cells

    def _text(self) -> str | None:
        hint = f"  Give {self._what}."
        try:
            content = read_bytes(self.path, hint=hint)
            # Spreadsheet programs write a byte order mark before the header.
            return decode_utf_8(content, hint=f"\n{hint}", encoding="utf-8-sig")
        except RefusedError as error:
            self._refuse(error.line, error.message)
            return None


@dataclass(frozen=True, slots=True)
class CsvRow:
    """One line of a CSV file; an invalid cell is reported and read as a harmless value."""

    file: CsvFile
    line: int
    cells: Mapping[str, str]
    faulty: set[str] = field(default_factory=set)
    """Columns with reported problems; problems that follow from their values are not reported."""

    def text(self, column: str) -> str:
        """A cell without surrounding spaces; empty if the file has no such column."""
        return self.cells.get(column, "").strip()

    def name(self, column: str) -> str:
        """A name of a node, a job or a GPU model."""
        found = self.text(column)
        if is_name(found):
            return found
        self.complain(column, "a name of letters, digits and . _ : / @ + -")
        return "unreadable"

    def whole(self, column: str, *, most: int) -> int:
        """A whole number from 0 to `most`."""
        found = self.text(column)
        if _DIGITS.fullmatch(found) and int(found) <= most:
            return int(found)
        self.complain(column, f"a whole number from 0 to {most}")
        return 0

    def optional_whole(self, column: str, *, most: int) -> int | None:
        """A whole number, or None for an empty cell."""
        return self.whole(column, most=most) if self.text(column) else None

    def complain(self, column: str, expected: str) -> None:
        """Report that a cell is not as expected."""
        found = self.text(column)
        self.faulty.add(column)
        shown = repr(found if len(found) <= _LONGEST_SHOWN else f"{found[:_LONGEST_SHOWN]}…")
        self.file.complain(self.line, column, f"{column} is {shown}; expected {expected}.")
