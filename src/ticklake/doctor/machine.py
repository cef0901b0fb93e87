"""Checks of this machine: Python, Java, packages, and the limit of open files."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ticklake.doctor.findings import Finding, error, ok, warning
from ticklake.doctor.subject import Machine, Subject
from ticklake.lake.errors import JavaMissing
from ticklake.lake.session import OLDEST, find_java

PYTHON = (3, 11)
FEW_FILES, TOO_FEW_FILES = 1024, 256
_INSTALL_JAVA = "apt-get install openjdk-17-jre-headless"
_EXTRA = re.compile(r"""extra == ["']([^"']+)["']""")
_PACKAGES = ("deltalake", "pyarrow", "pandas", "pyspark")


def python(_: Subject) -> Iterator[Finding]:
    found = sys.version_info[:3]
    text = f"Python {'.'.join(map(str, found))} in {sys.prefix}"
    yield ok("python", text) if found >= PYTHON else error("python", text, "Install Python 3.11 or newer.")


def java(subject: Subject) -> Iterator[Finding]:
    report = error if subject.needs_spark else warning
    try:
        found = find_java(subject.machine.environment)
    except JavaMissing as missing:
        yield report("java", f"Spark needs Java {OLDEST} or newer, but {missing.reason}.", _INSTALL_JAVA)
    else:
        yield ok("java", f"Java {found.version} in {found.command}")


def spark(subject: Subject) -> Iterator[Finding]:
    version = subject.machine.version_of("pyspark")
    place = find_spec("pyspark")
    if version is None or place is None or place.origin is None:
        yield error("pyspark", "pyspark is not installed.", "pip install --force-reinstall ticklake")
        return
    jars = Path(place.origin).parent / "jars"
    core = [jar.name for jar in jars.glob(f"spark-core_*-{version}.jar")]
    if not core:
        found = ", ".join(jar.name for jar in jars.glob("spark-core_*.jar")) or "none"
        yield error(
            "pyspark",
            f"pyspark is {version}, but its jars are {found}.",
            f"pip install --force-reinstall pyspark=={version}",
        )
        return
    yield ok("pyspark", f"pyspark {version} with {core[0]} and {sum(1 for _ in jars.glob('*.jar'))} jars in total")


def packages(subject: Subject) -> Iterator[Finding]:
    """Checks the requirements of ticklake, deltalake and pyspark on each other."""
    version_of = subject.machine.version_of
    misfits = []
    for owner in ("ticklake", "deltalake", "pyspark"):
        for required in _requirements(subject.machine, owner):
            found = version_of(required.name)
            if required.name in _PACKAGES and found is not None and not _satisfies(found, required):
                misfits.append(
                    f"{owner} {version_of(owner) or ''} needs {required.name} {required.specifier}, not {found}"
                )
    if misfits:
        yield error("packages", "; ".join(misfits) + ".", "pip install --upgrade ticklake")
        return
    yield ok("packages", ", ".join(f"{name} {version_of(name)}" for name in _PACKAGES) + " are compatible")


def delta_jar(subject: Subject) -> Iterator[Finding]:
    """Only Spark SQL needs delta-spark. Its version must match pyspark."""
    delta, found = subject.machine.version_of("delta-spark"), subject.machine.version_of("pyspark")
    if delta is None or found is None:
        yield ok("delta jar", "delta-spark is not installed; only Spark SQL on the tables needs it")
        return
    wanted = [one for one in _requirements(subject.machine, "delta-spark") if one.name == "pyspark"]
    misfit = next((one.specifier for one in wanted if not _satisfies(found, one)), None)
    if misfit is not None:
        yield warning(
            "delta jar",
            f"delta-spark {delta} needs pyspark {misfit}, but {found} is installed.",
            "pip install ticklake[delta-sql]",
        )
        return
    jar = f"io.delta:delta-spark_{'.'.join(found.split('.')[:2])}_2.13:{delta}"
    yield ok("delta jar", f"delta-spark {delta} matches pyspark {found}; its jar is {jar}")


def open_files(_: Subject) -> Iterator[Finding]:
    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= FEW_FILES:
        yield ok(
            "open files", f"{'any number of' if limit == resource.RLIM_INFINITY else f'{limit:,}'} files may be open"
        )
        return
    report = error if limit < TOO_FEW_FILES else warning
    yield report("open files", f"Only {limit:,} files may be open at once.", "ulimit -n 4096")


def _requirements(machine: Machine, owner: str) -> Iterator[Requirement]:
    """Yields the requirements of a package in this Python, including those of its extras."""
    for line in machine.requirements_of(owner):
        requirement = Requirement(line)
        requirement.name = canonicalize_name(requirement.name)
        extras = ["", *_EXTRA.findall(str(requirement.marker))]
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras):
            yield requirement


def _satisfies(version: str, requirement: Requirement) -> bool:
    """Returns whether a version satisfies a requirement. Pre-releases count, because they are what is installed."""
    return requirement.specifier.contains(version, prereleases=True)
