"""Arguments of the Python API as the planner takes them; one that cannot be is told as any bad input is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from gpuplan.models.errors import BadInputError, InputProblem
from gpuplan.models.policy.policy import Policy
from gpuplan.models.units import parse_milliseconds, parse_seconds
from gpuplan.planner.analysis.policy_changes import with_options
from gpuplan.planner.simulate.run_options import LONGEST_WAIT, SOLVER_NAMES, EpochClock, known_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_Value = TypeVar("_Value")

_WRONGEST: Final = 1000.0
"""Factor by which durations may be wrong."""
# As `--load` of `gpuplan simulate`.
_LOADS: Final = (0.001, 1000.0)


def refused(name: str, message: str) -> BadInputError:
    """What is wrong with an argument."""
    return BadInputError((InputProblem(name, message),))


def duration(name: str, value: int | str, *, least: int = 0) -> int:
    """Whole seconds of a duration, which is a number of seconds or a text such as `1h30m`."""
    seconds = _read(name, value, parse_seconds)
    if seconds < least:
        raise refused(name, f"expected a duration of {least}s or more, found {value!r}.")
    return seconds


def optional_duration(name: str, value: int | str | None, *, least: int = 0) -> int | None:
    """The same of an argument that may be left out."""
    return None if value is None else duration(name, value, least=least)


def at_least_one(name: str, value: int | None) -> int | None:
    """A count from one on, or None."""
    if value is not None and (not isinstance(value, int) or value < 1):
        raise refused(name, f"expected a whole number from 1 on, found {value!r}.")
    return value


def load_milli(value: float) -> int:
    """How many times as fast jobs come, in thousandths."""
    least, most = _LOADS
    if not isinstance(value, int | float) or not least <= value <= most:
        raise refused("load", f"expected a number from {least:g} to {most:g}, found {value!r}.")
    return round(value * 1000)


def wrong_by(value: float | None) -> float | None:
    """By which factor durations are wrong at most; None tells nothing of them."""
    if value is not None and (not isinstance(value, int | float) or not 1 <= value <= _WRONGEST):
        expected = f"None, or a factor from 1, which is exact, to {_WRONGEST:g}"
        raise refused("estimates", f"expected {expected}, found {value!r}.")
    return None if value is None else float(value)


def clock(
    every: int | str,
    min_interval: int | str | None,
    max_interval: int | str | None,
    length: int | str | None,
    epochs: int | None,
) -> EpochClock:
    """When epochs of a simulation are."""
    seconds, epochs = optional_duration("duration", length), at_least_one("epochs", epochs)
    if seconds is not None and epochs is not None:
        raise refused("duration", "duration and epochs both say when to end; give one of them.")
    if every != "event":
        for name, value in (("min_interval", min_interval), ("max_interval", max_interval)):
            if value is not None:
                raise refused(name, f'{name} is for epochs at events; give every="event" with it.')
        return EpochClock.regular(duration("every", every, least=1), seconds=seconds, epochs=epochs)
    apart = optional_duration("min_interval", min_interval) or 0
    most = optional_duration("max_interval", max_interval, least=max(1, apart)) or LONGEST_WAIT
    return EpochClock.of_events(least=apart, most=most, seconds=seconds, epochs=epochs)


def solvers_and_baselines(value: str | Iterable[str]) -> tuple[str, ...]:
    """Names of solvers and baselines of a simulation, each once."""
    names = [value] if isinstance(value, str) else list(value)
    if not names:
        raise refused("solver", "expected at least one solver or baseline, found none.")
    return _read("solver", names, known_names)


def milliseconds(name: str, value: int | str | None) -> int | None:
    """Milliseconds of a duration, which is a number of seconds or a text such as `500ms`; None is none."""
    return None if value is None else _read(name, value, parse_milliseconds)


def policy_with(
    policy: Policy | None,
    *,
    time_limit: int | str | None,
    solver: str,
    stop_gap: float | None,
    deterministic: bool,
) -> Policy:
    """
    The policy, or the default one, with what a call overrides.

    Raises
    ------
    BadInputError
        An argument cannot be; says which, what was found and what is expected.
    """
    if solver not in SOLVER_NAMES:
        raise refused("solver", f"expected one of {', '.join(SOLVER_NAMES)}, found {solver!r}.")
    if stop_gap is not None and (not isinstance(stop_gap, int | float) or not 0 <= stop_gap <= 1):
        raise refused("stop_gap", f"expected a fraction from 0 to 1, 0.01 being 1 %, found {stop_gap!r}.")
    limit = milliseconds("time_limit", time_limit)
    return with_options(policy or Policy(), limit, solver, stop_gap=stop_gap, deterministic=deterministic)


def _read(name: str, value: Any, parse: Callable[[Any], _Value]) -> _Value:
    try:
        return parse(value)
    except ValueError as error:
        raise refused(name, f"{error}".rstrip(".") + ".") from None
