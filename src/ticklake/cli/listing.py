"""Commands that list something by themselves and also have subcommands."""

from __future__ import annotations

import click
from click.core import ParameterSource


class ListingGroup(click.Group):
    """Refuses its own options before a subcommand, where they would be ignored."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        given = [
            param.opts[-1]
            for param in self.params
            if param.name and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
        ]
        if given:
            raise click.UsageError(f"Write {given[0]} after {name!r}; before it, the option would be ignored.", ctx)
        return name, command, rest
