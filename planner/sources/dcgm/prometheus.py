"""The HTTP API of Prometheus: queries, with credentials from files that the environment names."""

from __future__ import annotations

import json
import math
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

import httpx

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime
    from types import TracebackType
    from typing import Self

TOKEN_FILE: Final = "GPUPLAN_PROMETHEUS_TOKEN_FILE"  # noqa: S105  the name of a variable
CA_FILE: Final = "GPUPLAN_PROMETHEUS_CA_FILE"
CERT_FILE: Final = "GPUPLAN_PROMETHEUS_CERT_FILE"
KEY_FILE: Final = "GPUPLAN_PROMETHEUS_KEY_FILE"

_TIMEOUT: Final = 60
"""Seconds that one answer may take."""
_LONGEST_SAID: Final = 300
"""Characters of an error of the server that are repeated."""

Labels: TypeAlias = "Mapping[str, str]"
"""Labels of a series."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer."""

    labels: Labels
    samples: Sequence[tuple[float, float]]
    """(Time in seconds since 1970, value), in order; values that are no finite numbers are left out."""


@dataclass(slots=True)
class Prometheus:
    """A connection to a Prometheus, or to what offers its API, such as Thanos and Mimir."""

    url: str
    """`http://host:port` or `https://host:port`, with a path if the API is below one."""
    warnings: list[str] = field(default_factory=list)
    """What the server said beside its answers, such as that a part of the data is missing."""
    _client: httpx.Client | None = None

    def __enter__(self) -> Self:
        self.url = _checked(self.url)
        # No proxy of the environment may see the token, and no redirect may lead it elsewhere.
        self._client = httpx.Client(
            headers=_headers(), verify=_tls(), timeout=_TIMEOUT, trust_env=False, follow_redirects=False
        )
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _value: BaseException | None, _at: TracebackType | None
    ) -> None:
        if self._client is not None:
            self._client.close()

    def instant(self, query: str, at: datetime) -> list[Series]:
        """
        The value of each series at an instant.

        Raises
        ------
        PlannerError
            The server does not answer, refuses, or is no Prometheus; says which.
        """
        return self._asked("query", {"query": query, "time": at.timestamp()}, "vector")

    def over(self, query: str, at: datetime, *, seconds: int, step: int) -> list[Series]:
        """The values of each series at every `step` seconds of the `seconds` up to an instant."""
        end = at.timestamp()
        about = {"query": query, "start": end - seconds, "end": end, "step": step}
        return self._asked("query_range", about, "matrix")

    def _asked(self, path: str, about: Mapping[str, Any], kind: str) -> list[Series]:
        """The series of an answer."""
        body = self._answer(f"/api/v1/{path}", about)
        found = None
        try:
            answer = json.loads(body)
            if (answer["status"], answer["data"]["resultType"]) == ("success", kind):
                found = [_series(each, kind) for each in answer["data"]["result"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            found = None
        if found is None:
            raise PlannerError(
                f"{self.url} is no Prometheus: its answer to /api/v1/{path} is of another kind."
            )
        for each in map(_short, map(str, answer.get("warnings") or ())):
            if each not in self.warnings:
                self.warnings.append(each)
        return found

    def _answer(self, path: str, about: Mapping[str, Any]) -> bytes:
        if self._client is None:
            raise RuntimeError("the connection is used outside `with`")
        try:
            answer = self._client.get(self.url + path, params=dict(about))
        except httpx.TimeoutException:
            raise PlannerError(f"{self.url} does not answer within {_TIMEOUT} s.") from None
        except (httpx.HTTPError, ssl.SSLError) as error:
            raise PlannerError(
                f"{self.url} does not answer: {error}.\nIs Prometheus running there?"
            ) from None
        if answer.status_code == httpx.codes.OK:
            return answer.content
        raise PlannerError(self._refusal(path, answer))

    def _refusal(self, path: str, answer: httpx.Response) -> str:
        status = f"{answer.status_code} {answer.reason_phrase}".strip()
        if answer.is_redirect:
            to = urlsplit(answer.headers.get("location", ""))
            where = f" to {to.scheme}://{to.hostname}" if to.hostname else ""
            return f"{self.url} redirects{where} ({status}).\nGive the URL of Prometheus itself."
        hint = {
            401: f"Set {TOKEN_FILE} to a file with a token that may read it, or {CERT_FILE} and {KEY_FILE}.",
            403: f"The credentials of {TOKEN_FILE} or {CERT_FILE} may not read it.",
            404: "Is its API below another path?",
        }.get(answer.status_code, "")
        return f"{self.url}{path} failed: {status}{_said(answer.text)}.\n{hint}".rstrip()


def _checked(url: str) -> str:
    """The URL of a Prometheus without a slash at its end; an error repeats no credentials."""
    if "@" in url:
        raise PlannerError(f"The URL has a user or password.\nLeave them out, and set {TOKEN_FILE}.")
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
        httpx.URL(url)
    except (ValueError, httpx.InvalidURL):
        known = False
    if not known or parts.query or parts.fragment:
        raise PlannerError(
            f"{url.partition('?')[0]} is no URL of Prometheus; expected http://host:port or "
            "https://host:port, with the path below which its API is."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _series(each: Any, kind: str) -> Series:
    """
    A series of an answer.

    Raises
    ------
    ValueError, KeyError, TypeError, AttributeError
        It is none.
    """
    labels = {key: value + "" for key, value in each["metric"].items()}
    pairs = [
        (float(at), float(value)) for at, value in ([each["value"]] if kind == "vector" else each["values"])
    ]
    # A metric of nothing is NaN.
    return Series(labels, [(at, value) for at, value in pairs if math.isfinite(value)])


def _headers() -> dict[str, str]:
    if not (path := os.environ.get(TOKEN_FILE, "")):
        return {}
    token = _read(TOKEN_FILE, path).strip()
    if not re.fullmatch(r"[!-~]+", token):
        raise PlannerError(f"The file of {TOKEN_FILE} holds no token: expected one line of printable ASCII.")
    return {"Authorization": f"Bearer {token}"}


def _tls() -> ssl.SSLContext:
    """Trust in the certificates of the system or of the CA file, and the client's own certificate."""
    ca, cert, key = (os.environ.get(each, "") for each in (CA_FILE, CERT_FILE, KEY_FILE))
    if key and not cert:
        raise PlannerError(f"{KEY_FILE} is set, and {CERT_FILE} is not; expected both or neither.")
    for name, path in ((CA_FILE, ca), (CERT_FILE, cert), (KEY_FILE, key)):
        if path:
            _read(name, path)
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, key or None, password="")  # never ask on the terminal
    except (ssl.SSLError, OSError) as error:
        why = getattr(error, "reason", None) or type(error).__name__
        names = " or ".join(
            name for name, path in ((CA_FILE, ca), (CERT_FILE, cert), (KEY_FILE, key)) if path
        )
        raise PlannerError(
            f"The file of {names} cannot be used ({why}); expected PEM, unencrypted."
        ) from None
    return context


def _read(name: str, path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError as error:
        raise PlannerError(f"{name} names {path}, which cannot be read: {error.strerror}.") from None


def _said(text: str) -> str:
    """What the server says is wrong, in brackets."""
    try:
        answer = json.loads(text)
        return f" ({answer['errorType']}: {_short(answer['error'])})"
    except (ValueError, KeyError, TypeError):
        return ""


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST_SAID else f"{plain[:_LONGEST_SAID]}…"
