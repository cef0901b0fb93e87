"""`ticklake demo`: a whole pipeline, from a simulation to tables that you can query."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ticklake.cli.options.numbers import count
from ticklake.cli.terminal.interrupt import StoppedEarly, graceful_stop
from ticklake.cli.terminal.output import echo, json_option, print_json, print_table, size_text
from ticklake.cli.terminal.progress import Bars

if TYPE_CHECKING:
    from ticklake.config import NodeSettings
    from ticklake.insights import RunReport
    from ticklake.lake.read import Catalog
    from ticklake.node.node import Node

NOTHING_INDEXED = "Stopped before any tick was in the tables."
COLUMNS = ("table", "rows", "files", "size", "ticks")
POPULATION = """
    SELECT tick_number, count(*) FILTER (WHERE NOT is_dead) AS population
    FROM organism_data GROUP BY tick_number
"""


LINEAGES = (
    "SELECT program_id, count(DISTINCT organism_id) AS organisms, max(age) AS oldest"
    " FROM organism_data GROUP BY ALL ORDER BY organisms DESC LIMIT 5"
)


@click.command()
@click.option("--directory", default="ticklake-demo", show_default=True, help="Directory for all files.")
@click.option("--ticks", type=count(1), default=600, show_default=True, help="Number of ticks to simulate.")
@click.option("--seed", type=count(), default=42, show_default=True, help="Seed of the random world.")
@json_option
def demo(directory: str, ticks: int, seed: int, as_json: bool) -> None:
    """Run a small artificial-life simulation and index its ticks into Delta tables while it runs."""
    with graceful_stop() as stop:
        from ticklake.checks.places import local_path
        from ticklake.node.node import Node

        if stop.is_set():
            raise StoppedEarly(NOTHING_INDEXED)
        root = local_path(directory, "A demo")
        node = Node(_settings(root, ticks, seed))
        with Bars(quiet=as_json) as bars:
            bars.update("starting Spark", 0, 1)
            node.warm_up()
            bars.update("starting Spark", 1, 1)
            started = time.monotonic()
            with node:
                while not _finished(node) and not stop.wait(0.2):
                    _show(bars, node, ticks)
                seconds = time.monotonic() - started
                _show(bars, node, ticks)
    for service in node.failed:
        raise service.error or RuntimeError(service.name)
    if stop.is_set() and not all(_counts(node)):
        raise StoppedEarly(NOTHING_INDEXED)
    _report(root, node, seconds, as_json)


def _settings(directory: Path, ticks: int, seed: int) -> NodeSettings:
    """Returns the starter configuration with the options of the demo."""
    from ticklake.cli.errors import NotADemo
    from ticklake.config import load
    from ticklake.config.templates import write_starter

    file = directory / "ticklake.conf"
    settings = load(file if file.exists() else write_starter(directory))
    # Small flushes, so that the tables visibly grow during the simulation.
    indexer = {"insert_batch_size": 100, "flush_timeout_ms": 1000, "poll_interval_ms": 100}
    changes = {
        "simulation": {"max_ticks": ticks, "seed": seed},
        "environment-indexer": indexer,
        "organism-indexer": indexer,
    }
    services = dict(settings.services)
    for name in (*changes, "persistence-service", "completion-service"):
        if name not in services:
            raise NotADemo(file=file, service=name)
    for name, change in changes.items():
        options = services[name].options.model_copy(update=change)
        services[name] = dataclasses.replace(services[name], options=options)
    return dataclasses.replace(settings, services=services)


def _finished(node: Node) -> bool:
    """Returns whether every produced tick is persisted and in the tables, or a service has failed."""
    produced, persisted, *indexed = _counts(node)
    ended = node.services["completion-service"].state == "stopped"
    return bool(node.failed) or (ended and all(ticks >= produced for ticks in (persisted, *indexed)))


def _counts(node: Node) -> list[int]:
    def counted(service: str, name: str) -> int:
        return node.services[service].monitor.counter(name).value

    return [
        counted("simulation", "ticks_produced"),
        counted("persistence-service", "ticks_written"),
        counted("environment-indexer", "ticks_processed") + counted("environment-indexer", "ticks_present"),
        counted("organism-indexer", "ticks_processed") + counted("organism-indexer", "ticks_present"),
    ]


def _show(bars: Bars, node: Node, ticks: int) -> None:
    produced, persisted, *indexed = _counts(node)
    population = node.services["simulation"].monitor.gauges["organisms"]()
    bars.update("ticks produced", produced, ticks, f"{population:,.0f} organisms")
    bars.update("ticks persisted", persisted, ticks, f"{produced - persisted:,} behind")
    for name, done in zip(("environment_data", "organism_data"), indexed, strict=True):
        rows = node.services[f"{name.partition('_')[0]}-indexer"].monitor.counter("rows_written").value
        bars.update(f"ticks in {name}", done, ticks, f"{persisted - done:,} behind, {rows:,} rows")


def _report(directory: Path, node: Node, seconds: float, as_json: bool) -> None:
    from ticklake.insights import Places
    from ticklake.lake.read import Catalog
    from ticklake.storage import Storage

    lake = directory / "data" / "lake"
    catalog = Catalog(lake)
    report = Places(Storage(directory / "data" / "storage"), catalog).report(node.run_id)
    population = population_of(catalog, node.run_id)
    if as_json:
        print_json({"run": report, "seconds": round(seconds, 3), "lake": str(lake), "population": population})
    else:
        _print_summary(report, seconds, lake, population)


def population_of(catalog: Catalog, run_id: str) -> list[int]:
    """Returns the number of living organisms for each tick in the table; 0 for a tick without rows."""
    from ticklake.lake.read import query
    from ticklake.lake.verify import covered

    with query(catalog, POPULATION, run_id) as result:
        alive = {int(tick): int(count) for tick, count in result.rows}
    return [alive.get(tick, 0) for tick in covered(catalog.location(run_id, "organism_data")).ticks.tolist()]


def _print_summary(report: RunReport, seconds: float, lake: Path, population: list[int]) -> None:
    from ticklake.cli.terminal.plot import plot

    rows = sum(table.rows or 0 for table in report.tables)
    files = report.storage
    echo(f"\nRun {report.run_id}: {seconds:.1f} s from the first tick to the last row, {rows / seconds:,.0f} rows/s.")
    if files is not None:
        echo(f"{files.files:,} batch files, {size_text(files.bytes)}, ticks {files.ticks}.")
    print_table(
        COLUMNS, [(t.name, t.rows, t.files, size_text(t.bytes), t.ticks) for t in report.tables], numbers=COLUMNS[1:]
    )
    echo(plot(population, title="organisms alive, over time"))
    echo(f"\nThe tables are in {lake / report.run_id}. Now try:\n")
    echo(f'  .venv/bin/ticklake sql --lake {lake} --run {report.run_id} "{LINEAGES}"\n')
