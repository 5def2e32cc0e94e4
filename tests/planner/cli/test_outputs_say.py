"""Nothing of a snapshot, a file's name or a log reaches the terminal as something that it would obey."""

from __future__ import annotations

import ast
import json
import logging
from pathlib import Path

import click
import pytest

from gpuplan.models.plan.audit import AuditEntry, AuditKind
from gpuplan.planner.apply.audit_log import AuditLog
from gpuplan.planner.cli import outputs
from gpuplan.planner.service.event_log import JsonLines, TextLines, log_event
from gpuplan.planner.text_format import on_one_line, printable, printable_json
from tests.support.builders.build import NOW

EVIL = "x\x1b]0;pwned\x07\x9b31m\u202edaer\u2066\x7f\u200f\u2028é"
"""A title, a colour in C1 form, directions, a deletion, a line separator; and a letter that may stay."""


def obeyed(text):
    """Characters that a terminal would obey."""
    return sorted({char for char in text if not char.isprintable() and char != "\n"})


def quiet(ran):
    return not obeyed(ran.out) and not obeyed(ran.err)


@pytest.fixture
def evil(tmp_path):
    """A world with evil text wherever a snapshot may hold free text."""
    node = {"name": "n0", "cpus": 32, "memory_mib": 2**17, "rack": EVIL, "zone": EVIL, "region": EVIL}
    node |= {"gpus": {"model": "H100-80GB", "count": 8, "memory_mib": 81559}, "labels": {"a": EVIL}}
    node |= {"taints": [{"key": "a", "value": EVIL, "effect": "NoSchedule"}]}
    one = {
        "queue": "q",
        "submitted_at": "2026-11-20T11:00:00Z",
        "request": {"gpus": 4},
        "labels": {"b": EVIL},
    }
    jobs = [one | {"name": "a", "tolerations": [{"key": "a", "value": None}]}]
    jobs += [
        one | {"name": "b", "replicas": 4, "node_selector": {"a": EVIL}, "locality": {"required": "rack"}}
    ]
    world = {"taken_at": "2026-11-20T12:00:00Z", "cluster": {"nodes": [node]}, "queues": [{"name": "q"}]}
    (tmp_path / "world.json").write_text(json.dumps(world | {"jobs": jobs}))
    change = {"change": "remove_nodes", "nodes": {"rack": EVIL}}
    scenario = {"name": "gone", "description": EVIL, "changes": [change]}
    (tmp_path / "scenario.json").write_text(json.dumps(scenario))
    return tmp_path


COMMANDS = [
    ("validate", "world.json"),
    ("plan", "world.json", "-o", "plan.json"),
    ("plan", "world.json", "--json"),
    ("plan", "world.json", "-a"),
    ("show", "plan.json", "-a"),
    ("diff", "plan.json", "-a"),
    ("diff", "plan.json", "--json"),
    ("explain", "plan.json", "b"),
    ("explain", "plan.json", "n0"),
    ("explain", "plan.json", "b", "--json"),
    ("whatif", "world.json", "scenario.json"),
    ("whatif", "world.json", "scenario.json", "--json"),
    ("fit", "world.json", "b"),
    ("simulated", "create", "world.json"),
    ("snapshot", "--from", "simulated"),
]


@pytest.mark.slow
def test_texts_of_a_snapshot_are_shown_escaped_by_every_command(gpuplan, evil):
    for command in COMMANDS:
        options = ["--solver", "greedy"] if command[0] in ("plan", "whatif", "fit") else []

        ran = gpuplan(*command, *options)

        assert quiet(ran), (command, obeyed(ran.out), obeyed(ran.err))
        assert ran.code == 0, (command, ran.err)
        if "--json" in command or command[0] == "snapshot":
            json.loads(ran.out)
    assert (
        json.loads(gpuplan("plan", "world.json", "--json", "--solver", "greedy").out)["snapshot"]["cluster"][
            "nodes"
        ][0]["rack"]
        == EVIL
    )


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({EVIL: 1}),
        json.dumps({"taken_at": EVIL, "cluster": {EVIL: 1}, "queues": EVIL, "jobs": [{EVIL: EVIL}]}),
        json.dumps({"plan_id": EVIL, "actions": [], "checksum": EVIL, "format_version": EVIL}),
        json.dumps({"plan_id": EVIL, "actions": [], "checksum": EVIL, "format_version": "1.0"}),
        '{"a": \x9b31m}',
        "a: 'x\u202e",
        "- ? [\u202e]\n",
        "jobs: [{name: a, queue: *\u202e}]",
    ],
)
@pytest.mark.parametrize(
    "command", ["validate", "plan", "show", "audit verify", "search-log", "history", "verify"]
)
def test_errors_about_a_file_are_escaped_its_name_included(gpuplan, tmp_path, text, command):
    name = f"{EVIL.replace('/', '')}\n.json"
    (tmp_path / name).write_text(f"{text}\n")

    for path in (name, f"{name}.none"):
        ran = gpuplan(*command.split(), path, *(["world"] if command == "verify" else []))

        assert ran.code
        assert quiet(ran), (obeyed(ran.out), obeyed(ran.err))
        assert "defect" not in ran.err


@pytest.mark.parametrize(
    "arguments", [[EVIL], ["plan", f"--{EVIL}"], ["plan", "x", "--seed", EVIL], ["show"]]
)
def test_errors_of_usage_are_escaped(gpuplan, arguments):
    ran = gpuplan(*arguments)

    assert ran.code == 2
    assert quiet(ran)


def test_audit_records_are_shown_escaped(gpuplan, tmp_path):
    with AuditLog(tmp_path / "audit.jsonl").writing(actor=EVIL, now=lambda: NOW) as log:
        log.append([AuditEntry(at=NOW, who=EVIL, kind=AuditKind.RECOVERED, detail=EVIL, action=EVIL)])

    ran = gpuplan("audit", "show", "audit.jsonl")

    assert ran.code == 0
    assert "x\\x1b]0;pwned\\x07" in ran.out
    assert quiet(ran)
    assert len(ran.out.splitlines()) == 1


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()])
def test_lines_of_a_running_log_are_escaped(lines):
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(lines.format(record))
    logger = logging.getLogger("tests.terminal")
    logger.addHandler(handler)

    log_event(logger, "trouble", level=logging.ERROR, error=EVIL, file=EVIL)

    (line,) = seen
    assert not obeyed(line)


def test_a_text_with_escapes_of_its_data_loses_its_colours(monkeypatch):
    shown = []
    monkeypatch.setattr(outputs, "wants_colour", lambda: True)
    monkeypatch.setattr(click, "echo", lambda text, **_: shown.append(text))

    for data in ("plain", "\x1b[31mred"):
        outputs.say_in_colour(lambda colour, data=data: f"\x1b[1m{data}\x1b[0m\n" if colour else f"{data}\n")

    assert shown == ["\x1b[1mplain\x1b[0m\n", "\\x1b[31mred\n"]


def test_escaping_changes_nothing_else():
    assert on_one_line("a\nb\té×") == "a\\nb\\té×"
    assert printable("a\nb\té×") == "a\nb\\té×"
    assert json.loads(printable_json(json.dumps({EVIL: [EVIL, "\U000e0041"]}, ensure_ascii=False))) == {
        EVIL: [EVIL, "\U000e0041"]
    }


@pytest.mark.slow
def test_everything_is_said_in_one_place():
    root = Path(__file__).parents[3]
    found = [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in (root / "planner").rglob("*.py")
        if path != Path(outputs.__file__).resolve()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in _SPEAKING
    ]

    assert found == []


_SPEAKING = {"print", "click.echo", "click.secho", "sys.stdout.write", "sys.stderr.write"}


def test_choices_of_an_option_that_is_missing_are_legible(gpuplan):
    shown = gpuplan("apply", "plan.json")

    assert shown.code == 2
    assert shown.err.endswith("Choose from:\n  simulated,\n  local,\n  slurm\n")


def test_lines_that_are_wider_than_the_terminal_are_wrapped_and_indented():
    text = "Warning: " + "word " * 20 + "end\n  Known: " + "name-1, " * 12 + "last\nshort"

    lines = outputs.wrapped(text, 60).split("\n")

    assert max(map(len, lines)) <= 60
    assert [line.split()[0] for line in lines] == ["Warning:", "word", "Known:", "name-1,", "short"]
    assert [len(line) - len(line.lstrip()) for line in lines] == [0, 2, 2, 4, 0]
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    assert outputs.wrapped("x" * 90, 60) == "x" * 90


def test_a_terminal_gets_wrapped_lines_and_a_pipe_gets_them_as_they_are(capsys, monkeypatch):
    text = "word " * 40 + "end"
    outputs.say(text)
    piped = capsys.readouterr().out
    monkeypatch.setattr(outputs, "is_terminal", lambda _: True)
    monkeypatch.setenv("COLUMNS", "80")
    outputs.say(text)
    shown = capsys.readouterr().out

    assert piped == f"{text}\n"
    assert max(map(len, shown.splitlines())) <= 80 < len(text)
