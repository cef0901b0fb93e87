"""All checks, in the order of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ticklake.doctor import databases, machine, places, tables
from ticklake.doctor.findings import Finding, error
from ticklake.doctor.subject import Subject

Check = Callable[[Subject], Iterable[Finding]]

CHECKS: dict[str, Check] = {
    "python": machine.python,
    "java": machine.java,
    "pyspark": machine.spark,
    "packages": machine.packages,
    "delta jar": machine.delta_jar,
    "open files": machine.open_files,
    "disk space": places.disk_space,
    "permissions": places.permissions,
    "file system": places.network_file_system,
    "database": databases.reachable,
    "schema version": databases.versions,
    "clock": databases.clock,
    "stuck claims": databases.stuck_claims,
    "open transactions": databases.open_transactions,
    "backlog": databases.backlogs,
    "gaps": databases.gaps,
    "dead letters": databases.dead_letters,
    "tables": tables.tables,
    "files of runs": places.files_of_runs,
    "passed-over files": places.passed_over_files,
    "abandoned files": places.abandoned_files,
    "orphaned files": places.orphaned_tables_files,
}


def examine(subject: Subject) -> Iterator[Finding]:
    """Yields the findings of all checks. A check that raises is a finding too."""
    for name, check in CHECKS.items():
        try:
            yield from check(subject)
        except Exception as problem:  # the other checks can still find something
            text = " ".join(str(problem).split()) or type(problem).__name__
            yield error(name, f"The check itself failed: {text}", f"ticklake -vv doctor, and check {name} by hand")
