"""
The structure of the product in figures: sizes, names, words, imports, and what one more feature touches.

Every figure is counted from the sources, beside its goal. Import figures come from the graph that the import
rules are checked on; files run by a plan are traced in a child process. The reasons are in decision 0015, for
the first goals, and 0024, for those for today's features.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, TypeGuard

import grimp

from benchmarks.markdown import table
from benchmarks.plan_calls import calls_of_plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT: Final = Path(__file__).resolve().parent.parent
ROOMS: Final = ("models", "solvers", "planner")
TUNED: Final = ("solvers", "models/formulation")
"""Where a number at module level is a tuned one, unless it is in `EXACT`."""
EXACT: Final = frozenset(
    {
        # Sentinels: beyond all values that occur.
        "solvers/exact/cpsat.py _NO_LIMIT",
        "solvers/heuristics/list_scheduling.py _NOW",
        "solvers/incumbent.py _VIOLATION_PENALTY",
        "solvers/state/feasible_nodes_cache.py _NODE_WITH_GPUS",
        "solvers/state/node_scores.py NO_ROOM",
        "solvers/state/node_scores.py _TIGHTEST",
        "solvers/state/resource_timeline.py PLENTY",
        "solvers/state/resource_timeline.py _NOT_YET",
        # Positions in arrays, and slots.
        "solvers/state/assignment.py NOW",
        "models/formulation/time_indexed/future_capacity.py (WHOLE, SHARED, SLICES, FIRST_RESOURCE)",
        # Arithmetic: units of fixed-point numbers, and errors of floating-point ones.
        "solvers/dual_bound.py _MAX_SUM",
        "solvers/dual_bound.py _MOST_BITS",
        "solvers/exact/milp.py _TOLERANCE",
        "solvers/improve/column_generation/master.py _TOLERANCE",
        "solvers/improve/column_generation/subproblem.py PRICE_SCALE",
        "solvers/improve/column_generation/pricing_loop.py _LEAST_GAIN",
        "solvers/interface.py RELATIVE_ERROR",
        "solvers/state/stranded_gpus.py COST_SCALE",
        # Facts of hardware and of the operating system.
        "models/formulation/structure/node_classes.py _MIG_SLICES",
        "solvers/worker_process.py _PR_SET_PDEATHSIG",
        # Child processes: how they are watched and ended. No plan is found by these numbers.
        "solvers/parallel.py _GRACE_SECONDS",
        "solvers/worker.py GRACE_SECONDS",
        "solvers/worker_process.py _GC_THRESHOLD",
        "solvers/worker.py _HEARTBEAT",
        "solvers/worker.py _KILL_SECONDS",
        "solvers/worker_process.py LENGTH_BYTES",
        "solvers/worker.py _SELF_KILL_SECONDS",
        "solvers/worker.py _STDERR_CHARACTERS",
    }
)
"""Numbers at module level that are not tuned; every tuned number is in `SearchParams`."""
SINCE: Final = (
    "models/health",
    "planner/approval",
    "planner/executors/local",
    "planner/executors/slurm",
    "planner/rollback",
    "planner/sources/dcgm",
    "planner/sources/nvml",
    "planner/sources/slurm",
)
"""Packages of features that the product did not have when the goals of decision 0015 were set."""
PERSONIFYING: Final = re.compile(
    r"(?<![.`\"])\b(who|whom|whose|whoever|somebody|someone|anybody|anyone|nobody|everybody|everyone)\b(?![=:])",
    re.IGNORECASE,
)
"""Words for persons, but for the field `who` of the audit log."""
_CONSTRAINT: Final = re.compile(r"power_?cap|rack_?power|powercap|\bwatts|\bpowers?\b", re.IGNORECASE)
_LEDGER: Final = Path("solvers/state/ledger.py")
_NODE_ACTION: Final = re.compile(r"\bScaleDown\b|SCALE_DOWN")
_NAMES_CONSTRAINT: Final = re.compile(r"power|watts", re.IGNORECASE)
_HOLD: Final = (
    *("models/cluster.py", "models/plan/violation.py", "models/verifier", "models/problem"),
    *("models/formulation", "solvers", "planner/problem_builder"),
)
"""Where a constraint is made to hold: terms, verifier, problem, rows, ledger and search."""
_MOVES: Final = re.compile(r"\bMOVED?\b|\bMIGRATE\b")


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure with its goals."""

    name: str
    value: str
    goal: str
    """As set for the product of decision 0015; empty if it set none."""
    today: str = ""
    """For the features of today (decision 0024); empty where the first goal stands or was given up."""


@dataclass(frozen=True)
class House:
    """Python files of the product below `root`, read once."""

    root: Path

    @cached_property
    def files(self) -> dict[Path, str]:
        """Text of every product file."""
        return {
            path.relative_to(self.root): path.read_text()
            for room in ROOMS
            for path in sorted((self.root / room).rglob("*.py"))
        }

    @cached_property
    def trees(self) -> dict[Path, ast.Module]:
        """The parsed files."""
        return {path: ast.parse(text) for path, text in self.files.items()}

    def sizes(self) -> Iterator[Measure]:
        """Files, folders and lines."""
        folders = Counter(path.parent for path in self.files)
        fullest, count = folders.most_common(1)[0]
        lines = {path: text.count("\n") for path, text in self.files.items()}
        code = sum(_code_lines(text, self.trees[path]) for path, text in self.files.items())
        comments = sum(
            line.lstrip().startswith("#") for text in self.files.values() for line in text.splitlines()
        )
        written = sum(bool(line.strip()) for text in self.files.values() for line in text.splitlines())
        by_folder = Counter[Path]()
        for path, length in lines.items():
            by_folder[path.parent] += length
        largest, most = by_folder.most_common(1)[0]
        before = [path for path in self.files if not str(path).startswith(tuple(f"{one}/" for one in SINCE))]
        lines_before = sum(lines[path] for path in before)
        long = [path for path, length in lines.items() if length > 450]
        short = [path for path, length in lines.items() if length <= 60 and path.name != "__init__.py"]
        yield Measure("product files", f"{len(self.files):,}", "≤ 210")
        yield Measure("the same without packages of later features", f"{len(before):,}", "≤ 210")
        yield Measure("most files in a folder", f"{count} ({fullest})", "≤ 15")
        yield Measure("most lines in a folder", f"{most:,} ({largest})", "", "≤ 3,000")
        yield Measure("lines", f"{sum(lines.values()):,}", "≤ 44,000")
        yield Measure("the same without packages of later features", f"{lines_before:,}", "≤ 44,000")
        yield Measure("lines of a file, median", f"{median(lines.values()):.0f}", "", "100 to 200")
        yield Measure("lines of the longest file", f"{max(lines.values())}", "", "≤ 450")
        yield Measure("lines of code", f"{code:,}", "≤ 27,000")
        yield Measure("lines that are comments", f"{100 * comments / sum(lines.values()):.1f} %", "≥ 3 %")
        share = 100 * (written - code) / sum(lines.values())
        yield Measure("lines that are comments or docstrings", f"{share:.0f} %", "")
        yield Measure("files over 450 lines", str(len(long)), "0")
        yield Measure("files of at most 60 lines, packages apart", str(len(short)), "≤ 20")

    def names(self) -> Iterator[Measure]:
        """Classes and files by name."""
        places: defaultdict[str, list[Path]] = defaultdict(list)
        for path, tree in self.trees.items():
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path)
        doubles = [name for name, found in places.items() if len(found) > 1]
        gerunds = [path for path in self.files if path.stem.endswith("ing")]
        yield Measure("public class names with two meanings", _listed(doubles), "0")
        yield Measure("file names that end in -ing", _listed(path.stem for path in gerunds), "≤ 5")

    def words(self) -> Iterator[Measure]:
        """Lines that speak of jobs as persons."""
        count = sum(
            bool(PERSONIFYING.search(line)) for text in self.files.values() for line in text.splitlines()
        )
        yield Measure("lines with words for persons", str(count), "0")

    def constants(self) -> Iterator[Measure]:
        """Numbers at module level of what solves, which no parameter reaches."""
        tuned = self.numbers() - EXACT
        yield Measure("tuned numbers outside of the parameters", _listed(tuned), "0")

    def numbers(self) -> set[str]:
        """File and name of each number at module level of what solves."""
        return {
            f"{path} {ast.unparse(target)}"
            for path, tree in self.trees.items()
            if str(path).startswith(TUNED)
            for node in tree.body
            if _is_number(node)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        }

    def imports(self) -> Iterator[Measure]:
        """Files that one other file alone imports, and circles of imports, type imports included."""
        graph = grimp.build_graph("gpuplan", cache_dir=None)
        packages = {module for module in graph.modules if graph.find_children(module)}
        single = [
            module
            for module in graph.modules - packages
            if len(graph.find_modules_that_directly_import(module)) == 1
        ]
        circles = _circles(graph)
        share = 100 * len(single) / len(graph.modules - packages)
        yield Measure("files imported by exactly one other", str(len(single)), "≤ 40")
        yield Measure("the same, of all files", f"{share:.0f} %", "≤ 19 %", "≤ 20 %")
        yield Measure("circles of imports", _listed(f"{len(each)} files" for each in circles), "0")

    def touched(self) -> Iterator[Measure]:
        """Files that mention the two worked examples."""
        caps = [path for path, text in self.files.items() if _CONSTRAINT.search(text)]
        yield Measure("files that know power caps (a constraint)", str(len(caps)), "≤ 7")
        name = "files that know scale_down (a node action)"
        yield Measure(name, str(len(self.knowing_node_action())), "≤ 4")

    def knowing_node_action(self) -> list[str]:
        """Files that know the worked example of an action about nodes."""
        return [str(path) for path, text in self.files.items() if _NODE_ACTION.search(text)]

    def example(self) -> Iterator[Measure]:
        """Files with the worked example of a constraint, and those that make it hold."""
        named = [path for path, text in self.files.items() if _names(text, _NAMES_CONSTRAINT)]
        yield Measure("files with power in their code", str(len(named)), "≤ 7")
        yield Measure("those of them that make power caps hold", str(len(self.making_hold())), "", "≤ 20")

    def making_hold(self) -> list[str]:
        """Files that the worked example of a constraint is made to hold by."""
        return [
            str(path)
            for path, text in self.files.items()
            if str(path).startswith(_HOLD) and _names(text, _NAMES_CONSTRAINT)
        ]

    def forms(self) -> Iterator[Measure]:
        """Enumerations of what becomes of a job, and the size of the ledger."""
        enums = [
            node.name
            for tree in self.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            and any("Enum" in ast.unparse(base) for base in node.bases)
            and any(_MOVES.search(ast.unparse(each)) for each in node.body if isinstance(each, ast.Assign))
        ]
        yield Measure("enumerations with a move of a job", _listed(enums), "2")
        for node in self.trees.get(_LEDGER, ast.Module([], [])).body:
            if isinstance(node, ast.ClassDef) and node.name == "Ledger":
                methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
                public = sum(not name.startswith("_") for name in methods)
                yield Measure("base classes of the ledger", str(len(node.bases)), "0")
                yield Measure("public methods and properties of the ledger", str(public), "≤ 25")

    def run(self) -> Iterator[Measure]:
        """What runs in a plan of 9 jobs on 6 nodes."""
        calls = calls_of_plan(self.root, "scenarios/quickstart", "train-ranker", ROOMS)
        share = f"{100 * calls.files / len(self.files):.0f} %"
        yield Measure("files run by a small plan", str(calls.files), "≤ 110")
        yield Measure("the same, of all files", share, "≤ 52 %")
        yield Measure("files that get its snapshot, from `plan_epoch` on", str(calls.with_snapshot), "≤ 20")
        yield Measure("returns to one that was left", str(calls.returns), "≤ 15")
        yield Measure("classes of objects about one waiting job", _listed(calls.forms), "≤ 9")

    def measures(self) -> Iterator[Measure]:
        """All of them."""
        for part in (
            self.sizes,
            self.names,
            self.words,
            self.constants,
            self.imports,
            self.touched,
            self.example,
            self.forms,
            self.run,
        ):
            yield from part()


def house_table(root: Path = ROOT) -> str:
    """All measures as Markdown."""
    rows = [(each.name, each.value, each.goal, each.today) for each in House(root).measures()]
    return table(("measure", "today", "first goal", "goal for today's features"), rows)


def paths_in(text: str, below: tuple[str, ...] = ("",)) -> list[str]:
    """Paths in backticks of a text, in its order; `a/{b,c}.py` are two."""
    found = []
    for path in re.findall(r"`([\w./{},-]+/[\w./{},-]+)`", text):
        parts = [part.split(",") for part in re.split(r"[{}]", path)]
        found += ["".join(each) for each in product(*parts)]
    return [path for path in found if path.startswith(below)]


def _listed(names: Iterable[str]) -> str:
    """How many, and the first of them."""
    found = sorted(names)
    shown = ", ".join(found[:8]) + (" …" if len(found) > 8 else "")
    return f"{len(found)} ({shown})" if found else "0"


def _names(text: str, symbol: re.Pattern[str]) -> bool:
    """True if a name in the code contains a symbol; comments and docstrings do not count."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return any(token.type == tokenize.NAME and symbol.search(token.string) for token in tokens)


def _code_lines(text: str, tree: ast.Module) -> int:
    """Lines with anything on them but comments and docstrings."""
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in _NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


_NO_CODE: Final = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def _is_number(node: ast.stmt) -> TypeGuard[ast.Assign | ast.AnnAssign]:
    """True for `NAME = number` or a tuple of numbers, annotated or not."""
    if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
        return False
    return all(
        isinstance(part, _NUMBER)
        and (not isinstance(part, ast.Constant) or isinstance(part.value, int | float))
        for part in ast.walk(node.value)
    )


_NUMBER: Final = (
    *(ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop),
    *(ast.Tuple, ast.expr_context),
)


def _circles(graph: grimp.ImportGraph) -> list[set[str]]:
    """Sets of modules each of which imports all others of its set, directly or not."""
    above = {module: graph.find_upstream_modules(module) for module in graph.modules}
    circles: list[set[str]] = []
    for module, known in above.items():
        circle = {other for other in known if module in above[other]} | {module}
        if len(circle) > 1 and circle not in circles:
            circles.append(circle)
    return circles
