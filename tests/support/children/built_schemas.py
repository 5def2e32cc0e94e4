"""Imported in a server that children are forked from: the schemas of models are built once for all."""

from gpuplan.models.base import Noun


def _build(kind):
    kind.model_rebuild(raise_errors=False)
    for each in kind.__subclasses__():
        _build(each)


_build(Noun)
