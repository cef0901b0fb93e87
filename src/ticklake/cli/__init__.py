"""The `ticklake` command. Each command is a module in one of `PACKAGES` with a click command of the same name."""

from __future__ import annotations

import importlib
import io
import logging
import os
import pkgutil
import sys
import traceback
from functools import cache
from pathlib import Path
from typing import NoReturn

import click

from ticklake import logs
from ticklake.cli.help import with_help
from ticklake.cli.options.logs import level_of
from ticklake.errors import TickLakeError

PACKAGES = ("insight", "messages", "pipeline", "upkeep")
FAILED = 1
INTERRUPTED = 130


class CommandFolder(click.Group):
    """Finds commands by module name and imports a module only when its command is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if (module := _commands().get(cmd_name)) is None:
            return None
        command: click.Command = getattr(importlib.import_module(module), module.rpartition(".")[2])
        return with_help(command)


@cache
def _commands() -> dict[str, str]:
    """Returns the module of each command."""
    folder = Path(__file__).parent
    found = ((package, name) for package in PACKAGES for _, name, _ in pkgutil.iter_modules([str(folder / package)]))
    return {name.replace("_", "-"): f"{__name__}.{package}.{name}" for package, name in found}


@click.group(cls=CommandFolder, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ticklake", message="ticklake %(version)s")
@click.option("-v", "--verbose", count=True, help="Log to stderr; -vv logs every detail.")
@click.option("-q", "--quiet", is_flag=True, help="Print only results and errors: no progress, notes or warnings.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Format of log lines; default: text.")
@click.pass_context
def cli(context: click.Context, verbose: int, quiet: bool, log_format: logs.Format | None) -> None:
    """Ticks in, tables out, exactly once."""
    if verbose and quiet:
        raise click.UsageError("Give --verbose or --quiet, not both.")
    if os.environ.get("NO_COLOR"):  # https://no-color.org; rich obeys it by itself
        context.color = False
    logs.set_up(level_of(verbose, quiet), log_format or "text")


def main() -> None:
    """Runs the console script. Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted."""
    with_help(cli)
    _prepare_output()
    try:
        sys.exit(cli.main(standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        fail("Interrupted.", INTERRUPTED)
    except (TickLakeError, OSError) as error:
        fail(str(error), FAILED)
    except UnicodeEncodeError as error:
        fail(f"{error.object!r} is not valid UTF-8.", FAILED)
    except Exception as error:
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        reason = f"{type(error).__name__}: {error}"
        fail(f"This is a bug in TickLake. Please report it with the output of `ticklake -vv …`. {reason}", FAILED)


def _prepare_output() -> None:
    """Escapes characters that stdout cannot encode, as stderr does. Discards output if stdout is closed."""
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def fail(message: str, code: int) -> NoReturn:
    """Prints one line to stderr and exits."""
    click.echo(f"Error: {logs.one_line(logs.redacted(message))}", err=True)  # noqa: TID251  importing output takes longer
    sys.exit(code)
