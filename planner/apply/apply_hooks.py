"""What the caller of an apply sees and decides while it runs, and the time that passes meanwhile."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class MonotonicClock(Protocol):
    """Time, as an apply sees it."""

    def now(self) -> float:
        """Seconds since some instant; never goes back."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> float:
        """See `MonotonicClock`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See `MonotonicClock`."""
        time.sleep(seconds)


_SYSTEM_CLOCK: Final = SystemClock()


@dataclass(frozen=True, slots=True)
class ApplyHooks:
    """What the caller of an apply sees and decides while it runs."""

    on_progress: Callable[[int, int, str], None] | None = None
    """Called after each landed step with the number done, the total number, and a label of the step."""
    stop: Callable[[], bool] = lambda: False
    """Once it is True, no further action begins; those under way are waited for."""
    clock: MonotonicClock = _SYSTEM_CLOCK


NO_HOOKS: Final = ApplyHooks()
