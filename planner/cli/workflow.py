"""The list of commands in `gpuplan --help`, in the order of their use."""

from __future__ import annotations

from typing import Final

import click

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "Begin": ("init", "snapshot", "validate", "doctor"),
    "Plan and review": ("plan", "show", "diff", "verify", "explain", "search-log"),
    "Apply": ("apply", "run", "history", "audit", "simulated"),
    "Ask what if": ("whatif", "fit", "capacity", "sweep", "simulate"),
    "Look up": ("schema",),
}
"""Commands by purpose."""


class Workflow(click.Group):
    """A command group that lists its commands by section."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write one list of commands for each section; a command in no section is an error."""
        commands = dict(self.commands)
        widest = max(map(len, commands))
        for title, names in SECTIONS.items():
            rows = [
                (name.ljust(widest), commands.pop(name).get_short_help_str(formatter.width - 6 - widest))
                for name in names
            ]
            with formatter.section(title):
                formatter.write_dl(rows)
        if commands:
            raise LookupError(f"expected each command in a section, found {', '.join(commands)} in none")
