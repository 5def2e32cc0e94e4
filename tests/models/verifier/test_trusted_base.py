"""What the verifier shares with what it judges is what its package says, and nothing else."""

import re

import grimp

from gpuplan.models import verifier

ROOT = "gpuplan.models."


def listed():
    """Modules that the docstring of the package names, as `plan.violation`."""
    _, nouns, arithmetic = re.split(r"^(?:Nouns, .*|Arithmetic):$", verifier.__doc__, flags=re.MULTILINE)
    return {*nouns.split(), *re.sub(r"\(.*?\)|,", "", arithmetic, flags=re.DOTALL).split()}


def test_the_trusted_base_is_listed_in_full():
    graph = grimp.build_graph("gpuplan", cache_dir=None)
    shared = graph.find_upstream_modules(verifier.__name__, as_package=True)

    assert {name.removeprefix(ROOT) for name in shared} == listed()
