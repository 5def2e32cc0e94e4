"""A cluster that passes everything on to another one; subclasses do one thing differently."""

from __future__ import annotations


class Wrapped:
    """See `ClusterWriter`."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)
