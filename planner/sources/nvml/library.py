"""NVIDIA's management library: opened for a reading, with what one call may fail with."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import pynvml

from gpuplan.models.errors import PlannerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Note: TypeAlias = Callable[[str, str], None]
    """Called with a subject, such as `GPU 3`, and what of it is not understood."""

_Answer = TypeVar("_Answer")

_ABSENT: Final = frozenset(
    {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA}
)
"""What a GPU or driver answers that does not have a fact: consumer GPUs have no ECC, old ones no MIG."""

_GONE: Final = frozenset(
    {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_IRQ_ISSUE}
)
"""What a GPU answers that no program can use until it, or its host, is reset."""

_ADVICE: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "libnvidia-ml.so.1 is not found, so this machine has no driver.\n"
    "Run this on the host that has the GPUs, or install its driver; in a container, give it the GPUs.",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed and not loaded.\n"
    "Load it (`modprobe nvidia`); `nvidia-smi` tells more.",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver and its library have different versions.\n"
    "Load the installed driver anew, or start the host anew; `nvidia-smi` tells more.",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not speak to the NVIDIA driver.\n"
    "Run this as a user that may open /dev/nvidiactl.",
}


class GpuGoneError(Exception):
    """A GPU answers no calls any more; the message says why."""


@contextmanager
def opened_nvml() -> Iterator[None]:
    """
    NVML, from its start to its end.

    Raises
    ------
    PlannerError
        There is no driver, or it does not work.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        said = _ADVICE.get(error.value, f"{error}.\nTry `nvidia-smi`.")
        raise PlannerError(f"NVML cannot be used: {said}") from None
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def asked(
    call: Callable[..., _Answer], *arguments: Any, subject: str, note: Note, beyond: bool = False
) -> _Answer | None:
    """
    The answer of a call; None if the GPU or the driver does not have the fact, or if the call fails.

    A failure for another reason is noted. With `beyond`, an argument that NVML refuses is the end of a list.

    Raises
    ------
    GpuGoneError
        The GPU is lost, or works only after a reset.
    """
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _GONE:
            raise GpuGoneError(_plain(error)) from None
        if error.value in _ABSENT or (beyond and error.value == pynvml.NVML_ERROR_INVALID_ARGUMENT):
            return None
        note(subject, f"{call.__name__} fails: {_plain(error)}")
        return None


def asked_of_host(call: Callable[..., _Answer], *, note: Note) -> _Answer | None:
    """The answer of a call about no single GPU; None if it fails, with a note."""
    try:
        return asked(call, subject="NVML", note=note)
    except GpuGoneError as error:
        note("NVML", f"{call.__name__} fails: {error}")
        return None


def _plain(error: pynvml.NVMLError) -> str:
    return str(error).rstrip(".")
