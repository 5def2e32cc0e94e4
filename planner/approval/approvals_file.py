"""
Signatures of a plan, in a file beside it: `plan.json.approvals` for `plan.json`.

The plan file itself stays as it is. What is signed names the plan by the checksum of its whole content, and
the cluster by its identity, so a signature is worth nothing for another plan or another cluster.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import Field, StringConstraints, ValidationError

from gpuplan.models.errors import PlannerError, TamperedError
from gpuplan.models.plan.reason import PlanBase
from gpuplan.planner.io.atomic_write import write_atomically
from gpuplan.planner.io.file_lock import exclusive_lock, real_path

if TYPE_CHECKING:
    from gpuplan.models.plan.plan import Plan

_SUFFIX: Final = ".approvals"
# The most signatures that a file may have, of a few hundred bytes each, fit.
_LARGEST: Final = 2**20
_STDIN: Final = "-"

_Text = Annotated[str, StringConstraints(max_length=10_000)]


class PlanSignature(PlanBase):
    """One signature of a plan on one cluster."""

    cluster: _Text
    """Identity of the cluster."""
    checksum: _Text
    """Checksum of the plan file."""
    key: _Text
    """Public key, as OpenSSH writes it; which key has signed is decided by the signature alone."""
    signature: _Text
    """Signature of the statement, as `ssh-keygen -Y sign` writes it."""


class ApprovalsFile(PlanBase):
    """The signatures of one plan file."""

    format_version: Literal["1.0"] = "1.0"
    """Version of the format of this document."""
    signatures: tuple[PlanSignature, ...] = Field(default=(), max_length=1000)
    """Signatures in the order in which they were given."""


def statement(plan: Plan, checksum: str, cluster: str) -> bytes:
    """What an approver signs: the plan and the cluster that it may change."""
    lines = ("gpuplan approval 1", f"plan {plan.plan_id}", f"checksum {checksum}", f"cluster {cluster}")
    return "".join(f"{line}\n" for line in lines).encode()


def approvals_path(plan_file: str | Path) -> Path:
    """The file with the signatures of a plan file, beside the real file."""
    if str(plan_file) == _STDIN:
        raise PlannerError("signatures are kept beside the plan: expected a plan file, found standard input.")
    real = real_path(Path(plan_file))
    return real.with_name(f"{real.name}{_SUFFIX}")


def read_signatures(plan_file: str | Path) -> tuple[PlanSignature, ...]:
    """
    The signatures beside a plan file, unverified; none if nothing is there.

    Raises
    ------
    TamperedError
        The file is not one that gpuplan wrote.
    """
    if str(plan_file) == _STDIN or not (path := approvals_path(plan_file)).exists():
        return ()
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST)
    except OSError as error:
        raise PlannerError(f"approvals {path} cannot be read: {error.strerror}.") from None
    try:
        # A file that is cut off here is no JSON.
        return ApprovalsFile.model_validate_json(content).signatures
    except ValidationError:
        raise TamperedError(
            f"{path}: expected signatures as `gpuplan approve` writes them, found something else.\n"
            "Move the file away, and let the approvers sign again."
        ) from None


def add_signature(plan_file: str | Path, new: PlanSignature) -> None:
    """Add a signature durably; it replaces one with the same key, and those of another plan in this file."""
    path = approvals_path(plan_file)
    with exclusive_lock(path, subject=f"approvals {path}"):
        others = (
            each
            for each in read_signatures(plan_file)
            if each.checksum == new.checksum and (each.key, each.cluster) != (new.key, new.cluster)
        )
        whole = ApprovalsFile(signatures=(*others, new))
        write_atomically(path, whole.model_dump_json(indent=2) + "\n", private=True)
