"""
A machine with GPUs that is not there: NVIDIA's own bindings drive a library built from the C files beside.

The library is built once for all tests. Its state is a file, so that commands in processes of their own see
the same machine (`Machine.environment`).
"""

from __future__ import annotations

import atexit
import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pynvml
import pytest

SOURCES = Path(__file__).parent
STATE = "NVML_STANDIN_STATE"
MODELS = ("H100", "A30", "RTX 4090", "unknown MIG")
"""Models of GPUs, as `MODELS` of machine.c lists them."""
NO_INSTANCE = -1


@cache
def library() -> Path:
    """The library, built in a temporary folder; without a compiler the test is skipped."""
    if shutil.which("gcc") is None:
        pytest.skip("the stand-in for NVML is built with gcc, which is not installed")
    folder = tempfile.mkdtemp(prefix="nvml-standin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = Path(folder) / "libnvidia-ml.so.1"
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    command += ["-Wl,-soname,libnvidia-ml.so.1", "-o", str(built), *map(str, sorted(SOURCES.glob("*.c")))]
    subprocess.run(command, check=True)
    return built


class Machine:
    """A machine with GPUs of one model; every method changes what NVML shows of it."""

    def __init__(self, state, monkeypatch, gpus=8, model="H100"):
        self.environment = {STATE: str(state), "LD_LIBRARY_PATH": str(library().parent)}
        """What a process of its own needs to see this machine."""
        self._library = ctypes.CDLL(str(library()))
        monkeypatch.setenv(STATE, str(state))
        # A library that is loaded already is asked first, and functions are looked up only once.
        monkeypatch.setattr(pynvml, "nvmlLib", self._library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        self._check(self._library.standin_create(gpus, MODELS.index(model)))

    def _check(self, code):
        assert code == 0, f"the stand-in refuses this with code {code}"

    def set(self, gpu, **numbers):
        """Set numbers of a GPU, by the names in `GPU_NUMBERS` of machine.h."""
        for name, value in numbers.items():
            number = MODELS.index(value) if name == "model" else value
            self._check(self._library.standin_set(gpu, name.encode(), ctypes.c_longlong(number)))

    def add_process(self, gpu, pid, mib=1024, instance=NO_INSTANCE):
        """Let a process compute on a GPU, or on the GPU instance with this id."""
        size = ctypes.c_longlong(mib * 2**20)
        self._check(self._library.standin_add_process(gpu, pid, size, instance))

    def end_processes(self, gpu):
        """End all processes on a GPU."""
        self._check(self._library.standin_end_processes(gpu))

    def fail(self, call, code, gpu=-1):
        """Let a function of the C library fail, on one GPU or on all."""
        self._check(self._library.standin_fail(call.encode(), gpu, code))

    def raise_xid(self, gpu, xid):
        """Report an XID error."""
        self._check(self._library.standin_raise_xid(gpu, ctypes.c_longlong(xid)))

    def cut(self, gpu, *instances):
        """Turn MIG mode on and create instances, each a profile id and a start; returns their ids."""
        self.set(gpu, mig=1)
        pynvml.nvmlInit()
        handle, ids = pynvml.nvmlDeviceGetHandleByIndex(gpu), []
        for profile, start in instances:
            place = pynvml.c_nvmlGpuInstancePlacement_t(start, 0)
            made = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile, ctypes.byref(place))
            pynvml.nvmlGpuInstanceCreateComputeInstance(made, 0)
            ids.append(pynvml.nvmlGpuInstanceGetInfo(made).id)
        pynvml.nvmlShutdown()
        return ids
