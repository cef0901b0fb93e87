"""All checks, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ticklake.doctor import databases, machine, places, tables
from ticklake.doctor.findings import Finding, error
from ticklake.doctor.subject import Patient

Check = Callable[[Patient], Iterable[Finding]]

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
    "gaps": databases.gaps,
    "dead letters": databases.dead_letters,
    "tables": tables.tables,
    "passed-over files": places.passed_over_files,
    "abandoned files": places.abandoned_files,
    "orphaned files": places.orphaned_tables_files,
}


def examine(patient: Patient) -> Iterator[Finding]:
    """What every check finds; one that breaks is a finding too."""
    for name, check in CHECKS.items():
        try:
            yield from check(patient)
        except Exception as problem:  # whatever it is, the other checks can still tell something
            text = " ".join(str(problem).split()) or type(problem).__name__
            yield error(name, f"The check itself failed: {text}", f"ticklake -vv doctor, and look at {name} by hand")
