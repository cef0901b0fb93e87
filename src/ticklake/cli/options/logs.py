"""Sets up logging. Options of the `ticklake` command override the configuration."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from ticklake import logs

if TYPE_CHECKING:
    from ticklake.config.options import LogOptions


def set_up_logs(context: click.Context, configured: LogOptions) -> None:
    asked = context.find_root().params
    level = logging.getLevelNamesMapping()[configured.level.upper()]
    if asked["verbose"] or asked["quiet"]:
        level = level_of(asked["verbose"], asked["quiet"])
    logs.set_up(level, asked["log_format"] or configured.format)


def level_of(verbose: int, quiet: bool) -> int:
    return logging.ERROR if quiet else [logging.WARNING, logging.INFO, logging.DEBUG][min(verbose, 2)]
