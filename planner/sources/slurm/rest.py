"""What slurmrestd tells: over its socket, or over HTTP with a token from the environment."""

from __future__ import annotations

import getpass
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from gpuplan.models.errors import PlannerError
from gpuplan.planner.sources.slurm.slurm import SlurmReading, read_slurm
from gpuplan.planner.sources.slurm.texts import SlurmTexts

TOKEN: Final = "SLURM_JWT"  # noqa: S105  the name of a variable, as Slurm's own commands read it
_TIMEOUT: Final = 60
"""Seconds that one answer may take."""
_OLDEST: Final = 38
_NEWEST: Final = 46
"""Schemas v0.0.38 (Slurm 22.05) to v0.0.46 (26.05); of a newer server the newest of them is asked for."""
_SCHEMA: Final = re.compile(r"^/slurm/v0\.0\.(\d+)/nodes/?$")


def read_slurm_rest(url: str, *, managed: bool = False) -> SlurmReading:
    """
    Read the cluster of a slurmrestd at `unix:///path/to/socket`, `http://host:port` or `https://host:port`.

    A token is taken from `SLURM_JWT` only; it is in no message and in no file. slurmrestd tells no settings
    and no topology: nodes that are powered down are no pool, and nodes have no racks.

    Raises
    ------
    PlannerError
        The URL is of another kind, or the server does not answer as Slurm does.
    """
    return read_slurm(_texts(url), where=lambda key: f"{key} of {url}", managed=managed)


def _texts(url: str) -> SlurmTexts:
    with _client(url) as client:
        version = _version(client, url)
        found = {
            key: _answer(client, url, f"/slurm/{version}/{key}")
            for key in ("nodes", "jobs", "partitions", "reservations")
        }
        accounting = {
            key: _answer(client, url, f"/slurmdb/{version}/{key}", may_lack=True)
            for key in ("associations", "qos")
        }
    text = {key: value.decode(errors="replace") for key, value in (found | accounting).items()}
    return SlurmTexts(
        nodes=found["nodes"],
        jobs=found["jobs"],
        partitions=text["partitions"],
        reservations=text["reservations"],
        associations=text["associations"],
        qos=text["qos"],
        taken_at=datetime.now(UTC),
    )


def _client(url: str) -> httpx.Client:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise PlannerError(f"The URL has a user or password.\nLeave them out, and set {TOKEN}.")
    socket = parts.path if parts.scheme == "unix" else None
    if not (socket or (parts.scheme in ("http", "https") and parts.hostname)):
        raise PlannerError(
            f"{url} is no URL of slurmrestd; expected unix:///path/to/socket or http://host:port.\n"
            "Its path is that with which slurmrestd was started."
        )
    if socket and not Path(socket).is_socket():
        # httpcore would leave the socket open with which it failed to connect.
        raise PlannerError(f"{url} does not answer: no socket is there.\nIs slurmrestd running there?")
    # No proxy of the environment may see the token.
    return httpx.Client(
        transport=httpx.HTTPTransport(uds=socket) if socket else None,
        base_url="http://localhost" if socket else f"{parts.scheme}://{parts.netloc}",
        headers=_headers(),
        timeout=_TIMEOUT,
        trust_env=False,
    )


def _headers() -> dict[str, str]:
    token = os.environ.get(TOKEN, "").strip()
    if not token:
        return {}
    if not re.fullmatch(r"[!-~]+", token):
        raise PlannerError(f"{TOKEN} is no token: it has characters that a token does not have.")
    return {"X-SLURM-USER-NAME": getpass.getuser(), "X-SLURM-USER-TOKEN": token}


def _version(client: httpx.Client, url: str) -> str:
    """The newest schema that the server and gpuplan know."""
    try:
        paths = list(json.loads(_answer(client, url, "/openapi/v3"))["paths"])
    except (ValueError, KeyError, TypeError):
        raise PlannerError(f"{url} is no slurmrestd: /openapi/v3 does not list its paths.") from None
    offered = sorted(int(match[1]) for path in paths if (match := _SCHEMA.match(path)))
    if not (known := [each for each in offered if _OLDEST <= each <= _NEWEST]):
        found = ", ".join(f"v0.0.{each}" for each in offered) or "none"
        raise PlannerError(
            f"{url} offers schemas {found}; expected one of v0.0.{_OLDEST} to v0.0.{_NEWEST}.\n"
            "Start slurmrestd with one of them (-d v0.0.NN, with Slurm 22.05 -s openapi/v0.0.38), or use "
            "`--from slurm`."
        )
    return f"v0.0.{known[-1]}"


def _answer(client: httpx.Client, url: str, path: str, *, may_lack: bool = False) -> bytes:
    """What the server answers; empty if it `may_lack` the path and does."""
    try:
        answer = client.get(path)
    except httpx.HTTPError as error:
        raise PlannerError(f"{url} does not answer: {error}.\nIs slurmrestd running there?") from None
    if answer.status_code == httpx.codes.OK:
        return answer.content
    if may_lack and answer.status_code == httpx.codes.NOT_FOUND:
        return b""
    hint = f"Set {TOKEN} to the output of `scontrol token`." if answer.status_code in (401, 403) else ""
    if may_lack and answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        hint = (
            "Is slurmdbd running? Without its limits Slurm may refuse a plan. A cluster without slurmdbd "
            "needs a slurmrestd without its plugins for it (-s)."
        )
    status = f"{answer.status_code} {answer.reason_phrase}{_said(answer.text)}"
    raise PlannerError(f"{url}{path} failed: {status}.\n{hint}".rstrip())


def _said(text: str) -> str:
    """What the server says is wrong, in brackets."""
    try:
        errors = json.loads(text)["errors"]
    except (ValueError, KeyError, TypeError):
        return ""
    texts = [str(each.get("description") or each.get("error")) for each in errors if isinstance(each, dict)]
    return f" ({'; '.join(texts)})" if texts else ""
