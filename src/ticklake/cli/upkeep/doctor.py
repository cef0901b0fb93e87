"""`ticklake doctor`: finds what could keep a node from working, and suggests remedies."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from ticklake.cli.options.places import database_option, lake_option, storage_option
from ticklake.cli.terminal.output import cell_text, echo, json_option, print_json

MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "error": ("✗", "red")}
WIDTH = 15


@click.command()
@click.option("--config", metavar="FILE", help="Examine all places of this configuration.")
@storage_option
@lake_option
@database_option
@json_option
@click.pass_context
def doctor(
    context: click.Context,
    config: str | None,
    storage: str | None,
    lake: str | None,
    database: tuple[str, ...],
    as_json: bool,
) -> None:
    """Examine this machine and the places of a configuration, with a remedy for each problem. Changes nothing."""
    from ticklake.checks.places import lake_path, storage_place
    from ticklake.config import load
    from ticklake.doctor import Subject, examine

    given = [name for name in ("storage", "lake", "database") if _was_typed(context, name)]
    if config and given:
        raise click.UsageError(f"Give --config FILE or --{given[0]}, not both.")
    if config:
        subject = Subject.of(load(config))
    else:
        place = storage_place(storage) if storage else None
        storages = [place] if isinstance(place, Path) else []
        subject = Subject.at(storages, [lake_path(lake)] if lake else [], database)
    found = []
    with subject:
        for finding in examine(subject):
            found.append(finding)
            if not as_json:
                _print(finding.check, finding.level, finding.message, finding.remedy)
    if as_json:
        print_json({"findings": found})
    else:
        counts = {level: sum(one.level == level for one in found) for level in ("error", "warning")}
        echo(f"\n{counts['error']} errors, {counts['warning']} warnings.")
    if any(one.level == "error" for one in found):
        raise click.exceptions.Exit(1)


def _was_typed(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _print(check: str, level: str, message: str, remedy: str) -> None:
    mark, color = MARKS[level]
    click.echo(f"{click.style(mark, fg=color)} {check:<{WIDTH}} {cell_text(message)}")  # noqa: TID251  the mark has a color
    if remedy:
        echo(f"  {'':<{WIDTH}} → {cell_text(remedy)}")
