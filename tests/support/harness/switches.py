"""Switches of improvers: fields of type bool in the parameters of a search."""

from __future__ import annotations

from dataclasses import fields, is_dataclass


def switches(params, path=""):
    """Paths of all switches."""
    for field in fields(params):
        value = getattr(params, field.name)
        if is_dataclass(value):
            yield from switches(value, f"{path}{field.name}.")
        elif isinstance(value, bool):
            yield f"{path}{field.name}"
