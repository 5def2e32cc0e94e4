"""The two passes over a text agree: one builds its data, the other finds the lines of its entries."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuplan.models.errors import BadInputError
from gpuplan.planner.sources.documents.documents import read_file
from gpuplan.planner.sources.files import load_snapshot
from tests.support.seeds import examples

MANY = settings(max_examples=examples(60), deadline=None, database=None)

ODD_TEXTS = (
    *(
        "on",
        "off",
        "yes",
        "no",
        "y",
        "null",
        "~",
        "",
        "true",
        "NaN",
        ".nan",
        "-.inf",
        "=",
        "<<",
        "- a",
        "a: b",
    ),
    *("0o17", "017", "0x1F", "1_000", "12:30:45", "1e3", "1.", "2026-11-20", "2026-11-20T12:00:00Z", "1h30m"),
    *(
        "&a",
        "*a",
        "!x",
        "!!int 3",
        "# x",
        "%YAML 1.1",
        "---",
        "...",
        "\t",
        " x ",
        "a\nb",
        "a\r\nb",
        '"',
        "'",
        "\\",
    ),
    *("é", "\u2028", "\u0085", "\ufeff", "\U0001f600", "x" * 2000, "9" * 500),
)
TEXTS = st.sampled_from(ODD_TEXTS) | st.text(st.characters(exclude_categories=["C"]), max_size=5)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.sampled_from([10**399, -(10**398), 0, 2**63, 1e300, 5e-324, -0.0])
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)

PIECES = (
    *(
        "{",
        "}",
        "[",
        "]",
        ":",
        ": ",
        ",",
        '"',
        "'",
        " ",
        "  ",
        "\t",
        "- ",
        "? ",
        "#",
        "&a ",
        "*a",
        "!!x ",
        "! ",
    ),
    *(
        "\n",
        "\r\n",
        "\r",
        "\n- ",
        "---\n",
        "...\n",
        "|\n ",
        ">\n ",
        "%YAML 1.1\n",
        "\ufeff",
        "\u2028",
        "\u0085",
    ),
    *("a", "b", "a: 1\n", "b:\n", "b:\n  ", '"a": 1,', '"a" : 2,', "<<: ", "{}", "[]", "[" * 70, "]" * 70),
    *("NaN", "-Infinity", ".nan", "1e999", "on", "0o17", "12:30", "1_000", "null", "\\ud800", "é"),
    *("9" * 401, "-" + "9" * 400, "0." + "9" * 500),
)


class _Quoting(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):
    """Writes each text in quotes, since PyYAML's rules of what is a number are older."""


_Quoting.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def as_yaml(*documents, **more):
    return yaml.dump_all(documents, Dumper=_Quoting, sort_keys=False, allow_unicode=True, **more)


WAYS = {
    "compact.json": lambda data: json.dumps(data, separators=(",", ":")),
    "lines.json": lambda data: json.dumps(data, indent=1, ensure_ascii=False),
    "windows.json": lambda data: json.dumps(data, indent=1).replace("\n", "\r\n"),
    "json.yaml": lambda data: json.dumps(data, indent=1),
    "block.yaml": lambda data: as_yaml(data, default_flow_style=False),
    "flow.yaml": lambda data: as_yaml(data, default_flow_style=True),
    "windows.yaml": lambda data: as_yaml(data, line_break="\r\n"),
}


def read(name, text):
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / name
        path.write_bytes(text.encode())
        return read_file(str(path))


def locations(value, here=()):
    """The location of each entry, in the order of the text."""
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in entries:
        yield (*here, key)
        yield from locations(inner, (*here, key))


def lines_in_order(file):
    """The lines of all entries; the second pass finds each of them, one after the other."""
    wanted = list(locations(file.documents))
    lines = file.lines(wanted)
    assert list(lines) == wanted
    return list(lines.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", WAYS)
def test_what_is_written_is_read_and_each_entry_has_a_line(name):
    @MANY
    @given(DATA.map(lambda data: {"a": data}))
    def attempt(data):
        text = WAYS[name](data)
        file = read(name, text)

        assert repr(file.documents) == repr([data])
        lines = lines_in_order(file)
        assert lines == sorted(lines)
        assert lines[-1] <= len(text.split("\n"))

    attempt()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lines.json", "block.yaml"])
def test_a_key_is_on_its_line(name):
    @MANY
    @given(st.dictionaries(st.sampled_from(["no", "12:30", "<<", "1e3", "ä b"]), DATA, min_size=1))
    def attempt(data):
        text = WAYS[name](data)
        lines = read(name, text).lines([(0, key) for key in data])

        assert all(text.split("\n")[lines[0, key] - 1].lstrip().startswith(f'"{key}":') for key in data)

    attempt()


def test_several_documents_are_read_and_have_lines():
    @MANY
    @given(st.lists(DATA, min_size=1, max_size=4))
    def attempt(documents):
        file = read("x.yaml", as_yaml(*documents, explicit_start=True))

        assert repr(file.documents) == repr(documents)
        lines_in_order(file)

    attempt()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.json", "x.yaml", "x"])
def test_whatever_is_read_has_lines_and_whatever_is_refused_has_a_reason(name):
    @settings(MANY, max_examples=examples(300))
    @given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
    @example('{"a": [1, -Infinity0], "a": 1}')
    @example('{"a": {"b": 1, "b": NaN}}')
    @example("a: {b: 1, b: &x 2}\nb: [")
    def attempt(text):
        try:
            file = read(name, text)
        except BadInputError as error:
            reason = str(error)
        else:
            lines_in_order(file)
            reason = ""
        assert "found something else" not in reason

    attempt()


@pytest.mark.parametrize(
    "odd", ["0." + "9" * 500, "-" + "9" * 400, "[" * 200 + "]" * 200], ids=["digits", "integer", "nesting"]
)
def test_the_lines_of_what_json_accepts_are_told(tmp_path, odd):
    (tmp_path / "x.json").write_text(f'{{"format_version": "1.0",\n"zzz":\n{odd}}}')

    with pytest.raises(BadInputError, match=r"x\.json:2: the snapshot has unknown section 'zzz'"):
        load_snapshot(str(tmp_path / "x.json"))
