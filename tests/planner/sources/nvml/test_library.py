"""Without a driver, and with one that does not work, there is a message and what to do."""

from __future__ import annotations

import ctypes

import pynvml
import pytest

from gpuplan.models.errors import PlannerError
from gpuplan.planner.sources.nvml.library import opened_nvml
from tests.support.output.run_command import run_command


def no_library(name, *_):
    raise OSError(name)


def test_without_a_driver_the_command_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)

    done = run_command(["snapshot", "--from", "nvml"], folder=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "Error: NVML cannot be used: libnvidia-ml.so.1 is not found, so this machine has no driver.\n"
        "Run this on the host that has the GPUs, or install its driver; in a container, give it the GPUs.\n"
    )


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "modprobe nvidia"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "different versions"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "/dev/nvidiactl"),
        (pynvml.NVML_ERROR_UNKNOWN, "Try `nvidia-smi`."),
    ],
)
def test_a_driver_that_does_not_work_is_named_with_what_to_do(machine, code, advice):
    machine.fail("nvmlInitWithFlags", code)

    with pytest.raises(PlannerError) as error, opened_nvml():
        pass

    assert advice in str(error.value)


def test_nvml_is_shut_down_after_a_failure(machine):
    with pytest.raises(ZeroDivisionError), opened_nvml():
        raise ZeroDivisionError

    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlShutdown()
    assert isinstance(pynvml.nvmlLib, ctypes.CDLL)
    assert machine.environment
