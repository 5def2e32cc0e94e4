"""
gpuplan's own files: read snapshots (directory, file or standard input), policies and new jobs, write
snapshots as text or as folders, and starters.

Reading collects the problems of all files, each with file and line, before it raises.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from gpuplan.models.base import Noun
from gpuplan.models.errors import BadInputError, InputProblem, PlannerError, Suggestions
from gpuplan.models.job import Job
from gpuplan.models.policy.policy import Policy
from gpuplan.models.units import print_timestamp
from gpuplan.planner.io.atomic_write import sync_directory, write_atomically
from gpuplan.planner.sources.documents.build_snapshot import (
    AnyNoun,
    assemble,
    is_plan,
    validate_noun,
    validate_snapshot,
)
from gpuplan.planner.sources.documents.documents import (
    JSON_SUFFIX,
    LARGEST_BYTES,
    STDIN,
    YAML_SUFFIXES,
    DocumentFile,
    read_file,
)
from gpuplan.planner.sources.documents.error_messages import (
    LocatedProblem,
    SourceLocation,
    locate_problems,
    noun_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuplan.models.snapshot import Snapshot


_LOG: Final = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())  # show warnings only if the application has set up a log

SUFFIXES: Final = (*YAML_SUFFIXES, JSON_SUFFIX)
NO_SNAPSHOT: Final = frozenset({"plan", "policy", "profile", "scenario"})
"""Names, up to the first dot, of files that may be in a snapshot's directory without being part of it."""

_POLICY: Final = "policy"
_PLAN: Final = "plan"
_DOCUMENTS: Final = "files named *.yaml, *.yml or *.json"


def load_snapshot(source: str, *, largest: int = LARGEST_BYTES, strict: bool = False) -> Snapshot:
    """
    Read a snapshot from a directory of documents (without its subdirectories), one file, or `-`.

    Damage, such as a running job on a node that is missing, is an error only if `strict`.

    Raises
    ------
    BadInputError
        With every problem found: first syntax problems of the files; if there are none, problems of the data.
    """
    return inspect_snapshot(source, largest=largest, strict=strict)[0]


def snapshot_of(document: Mapping[str, Any], *, strict: bool = False) -> Snapshot:
    """
    The snapshot that a document states which is from no file, judged as `load_snapshot` judges files.

    Raises
    ------
    BadInputError
        With every problem found.
    """
    file = DocumentFile("snapshot", [dict(document)], lambda _: iter(()), "")
    snapshot, problems, _ = validate_snapshot(assemble([file]), strict=strict)
    if snapshot is None:
        raise BadInputError(
            locate_problems([LocatedProblem(None, each.message) for each in problems], [], file.place)
        )
    return snapshot.canonical()


def inspect_snapshot(
    source: str, *, largest: int = LARGEST_BYTES, strict: bool = False
) -> tuple[Snapshot, tuple[InputProblem, ...]]:
    """Like `load_snapshot`, and also return where the snapshot is damaged."""
    files = _read_all(_snapshot_files(source), largest)
    assembly = assemble(files, of_directory=_is_directory(source))
    for passed_over in locate_problems(assembly.passed_over, files, source):
        _LOG.warning("%s", passed_over)
    snapshot, problems, damages = validate_snapshot(assembly, strict=strict)
    if snapshot is None:
        raise BadInputError(locate_problems(problems, files, source))
    return snapshot.canonical(), locate_problems(damages, files, source)


def load_snapshots(paths: Iterable[Path]) -> list[tuple[str, Snapshot]]:
    """
    Snapshots of several files, each with its path; a folder stands for the documents in it.

    Raises
    ------
    BadInputError
        With every problem of all files, or if a folder has no documents.
    """
    problems: list[InputProblem] = []
    found = []
    for path in paths:
        try:
            files = document_files(path)
        except BadInputError as error:
            files = []
            problems += error.problems
        for file in files:
            try:
                found.append((str(file), load_snapshot(str(file))))
            except BadInputError as error:
                problems += error.problems
    if problems:
        raise BadInputError(tuple(problems))
    return found


def document_files(path: Path) -> list[Path]:
    """
    The documents in a folder, or the file itself.

    Raises
    ------
    BadInputError
        A folder that cannot be read, or has no documents.
    """
    files = _documents_in(str(path)) if path.is_dir() else [path]
    if not files:
        raise _bad(str(path), f"the folder has no documents; expected {_DOCUMENTS}.")
    return files


def load_policy(path: str | None) -> Policy:
    """
    Read a policy file; without a path, return the default policy.

    Raises
    ------
    BadInputError
        With every problem of the file.
    """
    return Policy() if path is None else load_noun(path, Policy)


def load_noun(path: str, noun: type[AnyNoun]) -> AnyNoun:
    """
    Read a file that holds the document of one data object, such as a policy.

    Raises
    ------
    BadInputError
        With every problem of the file.
    """
    return read_noun(path, noun)[0]


def read_noun(path: str, noun: type[AnyNoun]) -> tuple[AnyNoun, SourceLocation]:
    """
    Read a file that holds the document of one data object; also return its position, for later messages.

    Raises
    ------
    BadInputError
        With every problem of the file.
    """
    file, name = read_file(path), noun_name(noun)
    given = [number for number, document in enumerate(file.documents) if document is not None]
    if len(given) != 1:
        found = f"has {len(given)} documents" if given else "is empty"
        raise _bad(file.place, f"the file {found}; expected one {name}, a mapping ({{}} is all defaults).")
    spot = SourceLocation(file, (given[0],))
    document = file.documents[given[0]]
    made, problems = validate_noun(document, noun, spot.inside, subject=f"the {name}", near=Suggestions())
    if made is None:
        raise BadInputError(locate_problems(problems, [file], path))
    return made, spot


def made_of(document: Mapping[str, Any], noun: type[AnyNoun], place: str) -> AnyNoun:
    """
    The noun that a document states which is from no file; `place` is what it is called in messages.

    Raises
    ------
    BadInputError
        With every problem of the document.
    """
    made, problems = validate_noun(
        document, noun, lambda _: None, subject=f"the {noun_name(noun)}", near=Suggestions()
    )
    if made is None:
        raise BadInputError(locate_problems(problems, [], place))
    return made


def default_policy_path(source: str) -> str | None:
    """
    The policy file in a snapshot's directory, if there is one.

    Raises
    ------
    BadInputError
        There are several.
    """
    if not _is_directory(source):
        return None
    found = [path for path in _documents_in(source) if _stem(path) == _POLICY]
    if len(found) > 1:
        names = ", ".join(path.name for path in found)
        raise _bad(source, f"the directory has {len(found)} policies: {names}; expected one.")
    return str(found[0]) if found else None


def snapshot_text(snapshot: Snapshot) -> str:
    """The snapshot as JSON with one line per node, queue and job, so that two snapshots compare well."""
    document = {"format_version": snapshot.format_version} | snapshot.canonical().shared_document
    sections = {key: json.dumps(value, ensure_ascii=False) for key, value in document.items()}
    sections["cluster"] = _cluster_text(document["cluster"])
    for key in ("queues", "jobs"):
        sections[key] = _one_a_line(document.get(key, []))
    for key in ("finished", "measured"):
        if key in document:
            sections[key] = _one_a_line(document[key])
    return "{\n" + ",\n".join(f'  "{key}": {text}' for key, text in sections.items()) + "\n}\n"


def _cluster_text(cluster: dict[str, Any]) -> str:
    """The cluster with its nodes last, because they are many."""
    others = {key: value for key, value in cluster.items() if key != "nodes"}
    texts = [
        f'"{key}": {_one_a_line(value) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)}'
        for key, value in others.items()
    ]
    return "{" + ", ".join([*texts, f'"nodes": {_one_a_line(cluster["nodes"])}']) + "}"


def _one_a_line(entries: list[Any]) -> str:
    if not entries:
        return "[]"
    return "[\n" + ",\n".join("    " + json.dumps(entry, ensure_ascii=False) for entry in entries) + "\n  ]"


def _snapshot_files(source: str) -> list[str]:
    if not _is_directory(source):
        return [source]
    paths = [path for path in _documents_in(source) if _stem(path) not in NO_SNAPSHOT]
    if not paths:
        raise _bad(
            source,
            f"the directory has no snapshot; expected {_DOCUMENTS}.\n"
            f"  Not counted are subdirectories and files named {', '.join(sorted(NO_SNAPSHOT))}.",
        )
    return [str(path) for path in paths]


def kept_documents(directory: str) -> list[Path]:
    """Documents of a directory that must not be overwritten: all except a plan with a plan's file name."""
    return [path for path in _documents_in(directory) if _stem(path) != _PLAN]


def is_plan_file(path: Path) -> bool:
    """True if a file holds one plan and nothing else; False if it cannot be read."""
    try:
        documents = read_file(str(path)).documents
    except BadInputError:
        return False
    return len(documents) == 1 and is_plan(documents[0])


def _is_directory(source: str) -> bool:
    return source != STDIN and Path(source).is_dir()


def _documents_in(directory: str) -> list[Path]:
    """Document files by name; a broken link counts as one, so that it is reported and not ignored."""
    try:
        entries = sorted(Path(directory).iterdir(), key=lambda path: path.name)
    except OSError as error:
        raise _bad(directory, f"cannot be read: {error.strerror}.") from None
    return [path for path in entries if _is_document(path)]


def _is_document(path: Path) -> bool:
    named_so = path.suffix.lower() in SUFFIXES and not path.name.startswith(".")
    return named_so and (path.is_file() or (path.is_symlink() and not path.exists()))


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _read_all(paths: list[str], largest: int) -> list[DocumentFile]:
    """All files, or the problems of all that cannot be read."""
    files: list[DocumentFile] = []
    problems: list[InputProblem] = []
    for path in paths:
        try:
            files.append(read_file(path, largest=largest))
        except BadInputError as error:
            problems += error.problems
    if problems:
        raise BadInputError(tuple(problems))
    return files


def _bad(place: str, message: str) -> BadInputError:
    return BadInputError((InputProblem(place, message),))


# Scenario folders: a snapshot as readable files that compare well, with one node or job per line.


CLUSTER_FILE: Final = "cluster.json"
QUEUES_FILE: Final = "queues.yaml"
JOBS_FILE: Final = "jobs.json"
SCENARIO_FILES: Final = (CLUSTER_FILE, QUEUES_FILE, JOBS_FILE)


def write_scenario(snapshot: Snapshot, directory: Path) -> None:
    """Write the snapshot into a directory and replace the previous content of these files."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in scenario_files(snapshot.canonical()).items():
        write_atomically(directory / name, text)


def scenario_files(snapshot: Snapshot) -> dict[str, str]:
    """The texts by file name; together they contain the whole snapshot."""
    taken_at = print_timestamp(snapshot.taken_at)
    head = f'"format_version": {_json(snapshot.format_version)}, "taken_at": {_json(taken_at)}'
    about = {key: value for key, value in snapshot.cluster.document().items() if key not in ("name", "nodes")}
    parts = {"name": _json(snapshot.cluster.name)} | {key: _json(value) for key, value in about.items()}
    parts["nodes"] = _lines(snapshot.cluster.nodes)
    cluster = ", ".join(f'"{key}": {text}' for key, text in parts.items())
    # A JSON mapping is also valid YAML, and a queue is easiest to read on one line.
    queues = "".join(f"\n- {_json(queue.document())}" for queue in snapshot.queues)
    finished = f', "finished": {_lines(snapshot.finished)}' if snapshot.finished else ""
    measured = f', "measured": {_lines(snapshot.measured)}' if snapshot.measured else ""
    return {
        CLUSTER_FILE: f'{{{head}, "cluster": {{{cluster}}}}}\n',
        QUEUES_FILE: f"queues:{queues or ' []'}\n",
        JOBS_FILE: f'{{"jobs": {_lines(snapshot.jobs)}{finished}{measured}}}\n',
    }


def _lines(nouns: Iterable[Noun]) -> str:
    return "[\n" + ",\n".join(_json(noun.document()) for noun in nouns) + "\n]"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


# New jobs in one document.


class JobBatch(Noun):
    """Waiting jobs that are new to a cluster."""

    jobs: tuple[Job, ...] = Field(min_length=1)


# Starters: small scenarios with cluster, queues, jobs and an explained policy, as files to edit.


STARTERS: Final = ("training", "inference", "research", "batch")
"""Kinds of clusters with a starter."""


def write_starter(folder: Path, kind: str) -> list[Path]:
    """
    Write one of `STARTERS` into a new folder in one step, and return the files.

    Raises
    ------
    PlannerError
        The folder exists already, or cannot be made.
    """
    texts = starter_texts(kind)
    target = folder.resolve()
    if target.exists():
        raise PlannerError(f"{folder} is there already.\nGive the name of a new folder.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
        draft.mkdir()
        try:
            for name, text in texts.items():
                write_atomically(draft / name, text)
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        sync_directory(target.parent)
    except OSError as error:
        raise PlannerError(
            f"{folder} cannot be made: {error.strerror}.\nGive the name of a new folder."
        ) from None
    return [folder / name for name in texts]


def starter_texts(kind: str) -> dict[str, str]:
    """The files of one of `STARTERS` by name."""
    root = resources.files("gpuplan.planner") / "starters"
    files = [file for part in ("common", kind) for file in (root / part).iterdir()]
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(files, key=lambda file: file.name)}
