"""The wheel holds one import root and everything the product needs."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_wheel_built_from_the_sdist_installs_one_top_level_package(tmp_path):
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")

    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()

    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"planner"}
    here = {
        path.relative_to(ROOT / "planner").as_posix()
        for path in (ROOT / "planner").glob("**/*.py")
        if "__pycache__" not in path.parts
    }
    linked = {
        f"{room}/{path.relative_to(ROOT / room).as_posix()}"
        for room in ("models", "solvers")
        for path in (ROOT / room).glob("**/*.py")
    }
    assert {f"planner/{name}" for name in here | linked} <= set(names)
    templates = {f"planner/rendering/reports/{name}" for name in ("plan.html.j2", "style.css.j2")}
    assert {"planner/py.typed"} | templates <= set(names)


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
    script = (
        f"import sys; sys.path.insert(0, {str(site)!r}); import planner; print(planner.__file__); "
        "from planner.cli import cli; cli(['schema', 'policy'])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert shown.stdout.startswith(str(site))
    assert '"title": "Policy"' in shown.stdout or '"title": "gpuplan policy"' in shown.stdout
