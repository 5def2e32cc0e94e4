"""The wheel holds one import root and everything the product needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def test_wheel_built_from_the_sdist_installs_one_top_level_package(tmp_path):
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"gpuplan"}
    modules = {
        f"gpuplan/{path.relative_to(ROOT).as_posix()}"
        for room in ("models", "planner", "solvers")
        for path in (ROOT / room).glob("**/*.py")
    }
    templates = {f"gpuplan/planner/render/reports/{name}" for name in ("page.html.j2", "style.css.j2")}
    root = {f"gpuplan/{name}" for name in ("__init__.py", "__main__.py", "py.typed")}
    assert root | modules | templates <= set(names)


def test_installed_wheel_answers_without_the_checkout(tmp_path):
    build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    site = tmp_path / "site"
    install = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
    ]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)

    # The folder comes first on the path, so this is the wheel's planner, not the checkout's.
    where = subprocess.run(
        [sys.executable, "-c", "import gpuplan.planner; print(gpuplan.planner.__file__)"],
        cwd=site,
        capture_output=True,
        text=True,
        check=True,
    )
    assert where.stdout.startswith(str(site))

    for arguments, told in ((["init", "demo"], "policy.yaml"), (["plan", "demo"], "Plan:")):
        command = [sys.executable, "-m", "gpuplan", *arguments]
        done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert told in done.stdout + done.stderr
