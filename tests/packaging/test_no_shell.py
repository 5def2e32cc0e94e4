"""No shell is built from input: commands are lists of words everywhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for room in ("models", "solvers", "planner") for path in (ROOT / room).rglob("*.py"))

OF_SHELLS = {
    *("system", "popen", "getoutput", "getstatusoutput", "create_subprocess_shell"),
    *("eval", "exec", "execl", "execlp", "spawnl", "spawnlp", "compile_command"),
}
"""Functions that give a text to a shell or to an interpreter."""

STARTING = {"run", "Popen", "call", "check_call", "check_output", "create_subprocess_exec"}


def calls(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            of = node.func.value.id if isinstance(getattr(node.func, "value", None), ast.Name) else ""
            yield node, name, of


def findings(source):
    """What of a source would reach a shell."""
    for node, name, of in calls(ast.parse(source)):
        if name in OF_SHELLS:
            yield f"{node.lineno}: {name}"
        if any(each.arg == "shell" for each in node.keywords):
            yield f"{node.lineno}: shell="
        if of == "subprocess" and name in STARTING and isinstance(node.args[0], ast.JoinedStr | ast.Constant):
            yield f"{node.lineno}: {name} with a text"


@pytest.mark.parametrize(
    "source",
    [
        "os.system(x)",
        "subprocess.run(x, shell=True)",
        "subprocess.run(f'squeue {x}')",
        "subprocess.getoutput(x)",
        "asyncio.create_subprocess_shell(x)",
        "eval(x)",
    ],
)
def test_each_way_to_a_shell_is_found(source):
    assert list(findings(source))


@pytest.mark.slow
def test_there_is_none():
    found = [f"{path}:{each}" for path in SOURCES for each in findings(path.read_text(encoding="utf-8"))]

    assert len(SOURCES) > 300
    assert found == []
