"""`ticklake ui`: serves the web pages without a node."""

from __future__ import annotations

import re
from tempfile import TemporaryDirectory

import click

from ticklake.cli.errors import WebMissing
from ticklake.cli.options.numbers import PORT
from ticklake.cli.options.places import config_and_places_options, open_places
from ticklake.cli.terminal.interrupt import graceful_stop
from ticklake.cli.terminal.output import echo


@click.command()
@config_and_places_options
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. Any but loopback needs TICKLAKE_TOKEN.",
)
@click.option("--port", type=PORT, default=8080, show_default=True, help="Port to listen on; 0: any free port.")
@click.option("--prefix", default="", metavar="PATH", help="Path below which everything is served.")
@click.option("--read-only", is_flag=True, help="Refuse all changes.")
def ui(
    config: str | None, storage: str | None, lake: str | None, database: tuple[str, ...], host: str, port: int,
    prefix: str, read_only: bool,
) -> None:  # fmt: skip
    """Show runs, tables, topics and the world in a browser until Ctrl-C."""
    from ticklake.checks.places import lake_path
    from ticklake.config import load
    from ticklake.config.options import HttpOptions

    try:
        from ticklake.node.client import token_of
        from ticklake.web.security.guard import find_token
        from ticklake.web.server import open_site
        from ticklake.web.site import Site
    except ModuleNotFoundError as error:
        raise WebMissing(module=error.name) from error
    settings = load(config) if config else None
    if prefix and not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", prefix):
        raise click.BadParameter(f"{prefix!r} is not a path such as /ticklake.", param_hint="--prefix")
    options = HttpOptions(host=host, port=port, path_prefix=prefix, read_only=read_only)
    # A lake named by a configuration may be created later. One given on the command line must exist.
    root = lake_path(lake) if lake else None
    found = lake if root is None or settings is None or root.is_dir() else None
    with graceful_stop() as stop, TemporaryDirectory() as own, open_places(storage, found, database) as places:
        # With a configuration this is its node's token. Without one it is valid until this process ends.
        directory = settings.node.directory if settings is not None else own
        site = Site(places.storage, root, places.databases, settings=settings, read_only=read_only)
        server = open_site(site, options, directory)
        server.start()
        known = read_only or token_of()
        token = "" if known else f"#token={find_token(host, directory)}"
        echo(f"Listening on {server.url}/{token}", err=True)
        stop.wait()
        server.stop()
