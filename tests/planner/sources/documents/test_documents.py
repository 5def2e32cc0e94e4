"""Text to plain data: what is read, what is refused, and on which line."""

from __future__ import annotations

import io
import sys

import pytest

from gpuplan.models.errors import BadInputError
from gpuplan.planner.sources.documents import documents, tokens
from gpuplan.planner.sources.documents.documents import json_tokens, read_file


@pytest.fixture
def read(tmp_path):
    """Documents of a text in a file of some name."""

    def read(text, name="x.yaml", **more):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_file(str(path), **more)

    return read


@pytest.fixture
def refused(read, tmp_path):
    """The one message of a text that is refused, the directory left out."""

    def refused(text, name="x.yaml", **more):
        with pytest.raises(BadInputError) as caught:
            read(text, name, **more)
        (problem,) = caught.value.problems
        return str(problem).removeprefix(f"{tmp_path}/")

    return refused


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"),
        ("on", "on"),
        ("y", "y"),
        ("12:30:45", "12:30:45"),
        ("1_000", "1_000"),
        ("2026-11-20", "2026-11-20"),
        ("2026-11-20T12:00:00Z", "2026-11-20T12:00:00Z"),
        ("1h30m", "1h30m"),
        ("1.2.3", "1.2.3"),
        ("0b11", "0b11"),
        ("\n  -", [None]),
        ("=", "="),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'true'", "true"),
        ('"1"', "1"),
        ("|\n  12\n", "12\n"),
        ("007", 7),
        ("0o17", 15),
        ("0xff", 255),
        ("-12", -12),
        ("1.5", 1.5),
        (".5e3", 500.0),
        ("1e3", 1000.0),
    ],
)
def test_yaml_scalars_mean_what_yaml_1_2_says(read, written, meant):
    (document,) = read(f"a: {written}").documents

    assert document == {"a": meant}
    assert type(document["a"]) is type(meant)


def test_keys_are_texts_whatever_they_look_like(read):
    assert read("1: a\ntrue: b\nnull: c\n<<: d").documents == [
        {"1": "a", "true": "b", "null": "c", "<<": "d"}
    ]


def test_a_yaml_file_may_hold_several_documents(read):
    assert read("a: 1\n---\n---\nb: 2\n").documents == [{"a": 1}, None, {"b": 2}]


def test_json_is_read_under_any_name(read):
    for name in ("x.json", "x.yaml", "x"):
        assert read('{"a": [1, 2.5, "x", null, true]}', name).documents == [{"a": [1, 2.5, "x", None, True]}]


def test_json_is_read_fast_under_a_yaml_name(read):
    assert read('{"a": 1}', "x.yaml").tokens is json_tokens
    assert read("a: 1", "x.yaml").tokens is documents.yaml_tokens


def test_yaml_in_braces_is_read_under_a_yaml_name(read):
    assert read("{a: no}").documents == [{"a": "no"}]


def test_an_empty_file_has_no_documents_that_say_anything(read):
    assert read("").documents == []
    assert read("", "x.json").documents == []
    assert read("# nothing\n---\n").documents == [None]


def test_standard_input_is_read_by_its_first_character(monkeypatch):
    for text, name in (('\n{"a": 1}', "standard input"), ("a: 1", "standard input")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

        file = read_file("-")

        assert (file.place, file.documents) == (name, [{"a": 1}])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "x.yaml:2: has key 'a' a second time, first on line 1."),
        ("{a: 1,\n 'a': 2}", "x.yaml:2: has key 'a' a second time, first on line 1."),
        ("a: &x 1", "x.yaml:1: has anchor &x; expected each value written out in full."),
        ("a: &x [1]", "x.yaml:1: has anchor &x; expected each value written out in full."),
        ("\na: *x", "x.yaml:2: has alias *x; expected the value itself, in full."),
        (
            "a: !python 1",
            "x.yaml:1: has tag '!python'; expected plain values (texts in quotes).",
        ),
        ("a: !x {}", "x.yaml:1: has tag '!x'; expected plain values (texts in quotes)."),
        ("? [a]\n: 1", "x.yaml:1: has a list or a mapping as a key; expected a text."),
        ("a: .nan", "x.yaml:1: has number .nan; expected a finite one."),
        ("a:\n- -.inf", "x.yaml:2: has number -.inf; expected a finite one."),
        ("a: 1e999", "x.yaml:1: has number 1e999; expected a finite one."),
        ("a: " + "9" * 5000, "x.yaml:1: has a number of 5000 digits; expected at most 400."),
        ("a: 0x" + "f" * 5000, "x.yaml:1: has a number of 5002 digits; expected at most 400."),
        ("a: 1\nb: [", None),
        ("a: b: c", None),
        ("a: 'x", None),
        ("a:\n\t- b", None),
        ("a: @x", None),
        ('a: "\\ud800"', None),
    ],
)
def test_yaml_that_is_refused_is_told_with_its_line(refused, text, message):
    found = refused(text)

    if message is None:
        assert found.startswith("x.yaml:")
        assert "expected YAML, found an error at column" in found
    else:
        assert found == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "a": 2}', "x.json:2: has key 'a' a second time, first on line 1."),
        ('{"b": [{"\\u0061": 1,\n "a": 2}]}', "x.json:2: has key 'a' a second time, first on line 1."),
        ('{\n"a": NaN}', "x.json:2: has NaN; expected a JSON value."),
        ('{"a":\n-Infinity}', "x.json:2: has -Infinity; expected a JSON value."),
        ('{"a":\n' + "9" * 5000 + "}", "x.json:2: has a number of 5000 digits; expected at most 400."),
        (
            '{"a":\n"\\ud83d\\ude00 \\\\ud800 \\ud800"}',
            "x.json:2: has \\ud800, half of a surrogate pair; expected whole characters.",
        ),
        # Python 3.13 points at the comma, older ones behind it.
        ('{"a": 1,}', "x.json:1: expected JSON, found an error at column "),
        ('{"a": 1}\n{"b": 2}', "x.json:2: expected JSON, found an error at column 1: Extra data."),
        ("a: 1", "x.json:1: expected JSON, found an error at column 1: Expecting value."),
        ('{"a": "x\ny"}', "x.json:1: expected JSON, found an error at column 9: "),
    ],
)
def test_json_that_is_refused_is_told_with_its_line(refused, text, message):
    assert refused(text, "x.json").startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: 1\nb: \xff\n", "x.yaml:2: has byte 0xff; expected text in UTF-8."),
        (b"a: 1\nb: \x00\n", "x.yaml:2: has control character 0x00; expected text."),
        (b"\x7fELF\x02", "x.yaml:1: has control character 0x7f; expected text."),
        (
            b"\xef\xbb\xbfa: 1",
            "x.yaml: is UTF-8 with a byte order mark; expected plain UTF-8.",
        ),
        ("a: 1".encode("utf-16"), "x.yaml: is UTF-16; expected plain UTF-8."),
        (b"a: \xc2\x80\xef\xbf\xbe", "x.yaml: expected YAML, found an error: "),
    ],
)
def test_what_is_no_text_is_refused(refused, content, message):
    assert refused(content).startswith(message)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.yaml", "[" * 65),
        ("x.yaml", "[" * 200_000),
        ("x.yaml", "{a: " * 200_000),
        ("x.yaml", "".join(" " * level + "a:\n" for level in range(100))),
        # JSON is parsed whole before its depth matters, up to the interpreter's own limit.
        ("x.json", "[" * 200_000),
        ("x.json", '{"a":' * 200_000),
    ],
)
def test_deep_nesting_is_refused_and_never_recurses(refused, name, text):
    assert refused(text, name).endswith("is nested deeper than 64 levels; no document needs that.")


def test_nesting_below_the_limit_is_read(read):
    for name in ("x.yaml", "x.json"):
        assert read("[" * 64 + "]" * 64, name).documents[0] != []


def test_a_file_beyond_the_limit_is_refused(read, refused):
    assert read("a: 1", largest=4).documents == [{"a": 1}]
    assert "3.8147e-06 MiB" in refused("a: 12", largest=4)


@pytest.mark.parametrize(("name", "text"), [("x.yaml", "[1, 2, 3, 4]"), ("x.json", "[1, 2, 3, 4]")])
def test_a_text_with_too_many_values_is_refused(monkeypatch, read, refused, name, text):
    monkeypatch.setattr(tokens, "MOST_VALUES", 3)
    monkeypatch.setattr("gpuplan.planner.sources.documents.documents.MOST_VALUES", 3)

    assert "has more than 3 values" in refused(text, name)
    assert read("[1]", name).documents == [[1]]


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(BadInputError) as caught:
        read_file(str(tmp_path / "none.yaml"))

    assert str(caught.value) == (
        f"{tmp_path}/none.yaml: cannot be read: No such file or directory.\n"
        "  Check the path: expected a YAML or JSON file, or - for standard input."
    )


def test_a_path_that_cannot_be_one_is_told():
    with pytest.raises(BadInputError, match="cannot be read"):
        read_file("a\0b")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.yaml", "a:\n- b: 1\n  c:\n  - d\n\n  - e\n---\na: 2\n"),
        ("x.json", '{"a":\n[{"b": "x\\n}\\"",\n"c": ["d",\n\n"e"]}]}'),
    ],
)
def test_lines_are_those_of_keys_and_of_list_entries(read, name, text):
    file = read(text, name)

    lines = file.lines({(0, "a", 0, "c", 1), (0, "a", 0, "b"), (0, "a", 9), (1, "a")})

    if name == "x.yaml":
        assert lines[1, "a"] == 8
    assert lines[0, "a"] == 1
    assert lines[0, "a", 0] == 2
    assert lines[0, "a", 0, "b"] == 2
    assert lines[0, "a", 0, "c"] == 3
    assert lines[0, "a", 0, "c", 1] == (6 if name == "x.yaml" else 5)
    assert (0, "a", 9) not in lines


def test_yaml_reads_the_same_without_the_c_library(monkeypatch, read):
    text = "a: [1, 'x', {b: no}]\nc:\n- d: |\n    e\n"
    fast = read(text)
    monkeypatch.setattr(documents, "_LOADER", documents.yaml.SafeLoader)

    slow = read(text)

    assert slow.documents == fast.documents
    assert slow.lines({(0, "c", 0)}) == fast.lines({(0, "c", 0)})


@pytest.mark.parametrize("text", ['a: "\\ud800"', "a: &x 1", "a: [", "a: \x80"])
def test_yaml_is_refused_the_same_without_the_c_library(monkeypatch, refused, text):
    monkeypatch.setattr(documents, "_LOADER", documents.yaml.SafeLoader)

    assert refused(text).startswith("x.yaml")


@pytest.mark.parametrize("digits", [401, 4300, 4301, 100_000])
@pytest.mark.parametrize("name", ["x.yaml", "x.json"])
@pytest.mark.parametrize("sign", ["", "-"])
def test_integers_of_more_digits_than_any_number_needs_are_refused(read, digits, name, sign):
    with pytest.raises(BadInputError) as caught:
        read(f'{{"a":\n{sign}{"9" * digits}}}', name)

    (problem,) = caught.value.problems
    assert problem.place.endswith(f"{name}:2")
    assert problem.message == f"has a number of {len(sign) + digits} digits; expected at most 400."


def test_a_text_of_many_digits_is_a_text(read):
    long = "9" * 5000

    assert read(f'{{"a": "{long}", "b": {"7" * 400}}}', "x.json").documents == [
        {"a": long, "b": int("7" * 400)}
    ]
