"""Reports in a browser, where there is one: as wide as a telephone and as a desk."""

from __future__ import annotations

import html as markup
import json
import re
import shutil
import subprocess

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (360, 1280)
PROBE = """<!doctype html><body><script>
const widths = frame => {{
  const root = frame.contentDocument.documentElement;
  const folded = root.scrollWidth;
  for (const each of root.querySelectorAll("details")) each.open = true;
  return [folded, root.scrollWidth];
}};
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map(widths);
  document.body.dataset.found = JSON.stringify(found);
}});
</script>{frames}</body>"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium to look at reports with"),
]


@pytest.fixture
def seen(html, tmp_path):
    """What the browser makes of a report: the page it ends with, and what it complains about."""
    text = markup.escape(html)
    frames = "".join(
        f'<iframe srcdoc="{text}" style="border:0;width:{width}px;height:800px"></iframe>' for width in WIDTHS
    )
    path = tmp_path / "probe.html"
    path.write_text(PROBE.format(frames=frames), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    profile = [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=10000"]
    command = [BROWSER, *options, *profile, path.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def test_no_page_scrolls_sideways_nor_makes_the_browser_complain(seen):
    found = json.loads(markup.unescape(re.search(r'data-found="([^"]*)"', seen.stdout)[1]))

    assert all(scrolled <= width for width, each in zip(WIDTHS, found, strict=True) for scrolled in each), (
        found
    )
    assert [line for line in seen.stderr.splitlines() if ":CONSOLE" in line] == []
