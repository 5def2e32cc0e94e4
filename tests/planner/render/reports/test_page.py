"""What holds for every report: it is sound, needs nothing from elsewhere, and can be read by all."""

from __future__ import annotations

import re
from collections import Counter
from importlib.resources import files

import pytest

from gpuplan.planner.render.reports.simulation import simulation_report
from gpuplan.planner.render.reports.whatif import whatif_report
from tests.support.builders.build import cluster, job, placement, replica, snapshot
from tests.support.builders.comparison_builders import comparison, trial
from tests.support.builders.simulation_builders import run, simulation
from tests.support.output.html_pages import Page, page
from tests.support.samples.sample_plans import small_plan

HOSTILE = "<script>alert('$1_2$')</script>"
STYLE = files("gpuplan.planner.render.reports").joinpath("style.css.j2").read_text(encoding="utf-8")
LIGHT, DARK = (
    dict(re.findall(r"--([\w-]+): (#\w+);", block))
    for block in re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
)


@pytest.mark.slow
def test_every_tag_is_closed_in_its_order(html):
    assert Page(html).faults == []


@pytest.mark.slow
def test_ids_are_unique_and_links_lead_to_them(html):
    found = Page(html)
    ids = Counter(found.values("id"))

    assert [name for name, times in ids.items() if times > 1] == []
    assert {link.removeprefix("#") for link in found.values("href")} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", html)) <= set(ids)


def test_nothing_is_fetched_and_nothing_runs(html):
    found = Page(html)

    assert not {"script", "link", "img", "iframe", "object", "embed"} & set(found.tags)
    assert not [name for name, _ in found.attributes if name == "src" or name.startswith("on")]
    assert not [link for link in found.values("href") if not link.startswith("#")]
    assert not re.search(r"url\((?!#)|https?:|@import", html)


def test_pictures_are_told_in_words(html):
    drawings = re.findall(r"<svg [^>]*>", html)

    assert drawings
    assert all("aria-hidden" in tag or re.search(r'aria-label="[^"]+"', tag) for tag in drawings)


def test_what_scrolls_can_be_reached_by_keyboard(html):
    regions = re.findall(r'<div class="scroll"[^>]*>', html)

    assert regions
    assert all('tabindex="0"' in tag and "aria-label=" in tag for tag in regions)


def test_drawings_are_in_the_colours_of_the_page(html):
    used = set(re.findall(r"var\(--([\w-]+)\)", html))

    assert used <= LIGHT.keys()
    body = html[html.index("</style>") :]
    assert not re.search(r"(fill|stroke): ?#", body)


def test_every_shape_of_a_drawing_has_a_look(html):
    kinds = set(re.findall(r'<path class="([^"]+)"', html))
    selectors = re.findall(r"^((?:path)?\.[^{>]*)\{", STYLE, re.MULTILINE)
    styled = {name for selector in selectors for name in re.findall(r"\.([\w-]+)", selector)}

    assert kinds <= styled


def test_hostile_names_of_jobs_and_racks_stay_text():
    world = snapshot(nodes=cluster(2, rack=HOSTILE), jobs=[job(gpus=8, replicas=2)])

    found = page(small_plan(world, [placement("a", replica(gpus=range(8)), replica("n1", gpus=range(8)))]))

    assert "script" not in found.tags
    assert HOSTILE in found.text
    assert found.faults == []


def test_hostile_descriptions_of_scenarios_stay_text():
    found = Page(whatif_report(comparison(trial("a", description=HOSTILE, unmet=(HOSTILE,)))))

    assert "script" not in found.tags
    assert found.text.count(HOSTILE) == 2
    assert found.faults == []


@pytest.mark.slow
def test_hostile_names_of_runs_stay_text():
    found = Page(simulation_report(simulation(run(HOSTILE), source=HOSTILE)))

    assert "script" not in found.tags
    assert HOSTILE in found.text
    assert found.faults == []


def luminance(colour):
    digits = colour.removeprefix("#")
    digits = "".join(2 * digit for digit in digits) if len(digits) == 3 else digits
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


WRITTEN = [
    *(
        (text, ground)
        for text in ("ink", "quiet", "start", "stop", "care", "link")
        for ground in ("page", "panel")
    ),
    *((f"on-{fate}", fate) for fate in ("kept", "arrives", "leaves")),
    ("care", "care-panel"),
]
DRAWN = [
    *((fate, ground) for fate in ("kept", "arrives", "leaves", "limit") for ground in ("page", "shade")),
    *((f"series-{number}", "page") for number in range(1, 7)),
]


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), WRITTEN)
def test_text_stands_out_from_its_ground(colours, text, ground):
    assert contrast(colours[text], colours[ground]) >= 4.5


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("shape", "ground"), DRAWN)
def test_shapes_stand_out_from_their_ground(colours, shape, ground):
    assert contrast(colours[shape], colours[ground]) >= 3


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_what_arrives_differs_from_what_stays_without_colours_too(colours):
    assert contrast(colours["arrives"], colours["kept"]) >= 2
