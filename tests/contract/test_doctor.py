"""The doctor: each check sees what is broken, says what to type next, and leaves everything as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake
from psycopg.sql import SQL, Identifier

from ticklake import BatchInfo, Database
from ticklake.cli import cli
from ticklake.config import load
from ticklake.config.templates import write_starter
from ticklake.coordination.claims import FoundFile
from ticklake.coordination.coordinator import Coordinator
from ticklake.coordination.target import Target
from ticklake.doctor import CHECKS, Finding, Level, Subject, examine
from ticklake.doctor.subject import NEWEST_RUNS, Machine, Store, installed
from ticklake.indexers.builtin.environment import EnvironmentIndexer
from ticklake.insights import backlogs
from ticklake.lake.lake import Lake
from ticklake.lake.verify.coverage import table_id
from ticklake.storage.files import Storage
from ticklake.ticks import TickRange

HEALTHY = Subject()


def found(check: str, subject: Subject = HEALTHY) -> list[Finding]:
    return list(CHECKS[check](subject))


def only(check: str, subject: Subject = HEALTHY) -> Finding:
    (finding,) = found(check, subject)
    assert finding.check == check
    assert bool(finding.remedy) == (finding.level is not Level.OK)
    return finding


def troubles(check: str, subject: Subject) -> list[Finding]:
    return [one for one in found(check, subject) if one.level is not Level.OK]


def with_machine(**changes) -> Subject:
    return replace(HEALTHY, machine=replace(Machine(), **changes))


# The machine


def test_python_and_packages_of_this_installation_are_fine():
    for check in ("python", "pyspark", "packages", "delta jar"):
        assert only(check).level is Level.OK


@pytest.fixture
def java(tmp_path: Path):
    """A PATH with a Java of this version in it, or with none."""

    def path(version: str | None) -> Subject:
        if version:
            (tmp_path / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
            (tmp_path / "java").chmod(0o755)
        return with_machine(environment={"PATH": str(tmp_path)})

    return path


@pytest.mark.parametrize("version", ["17.0.15", "25", "21-ea"])
def test_a_java_that_spark_can_use_is_fine(java, version):
    assert only("java", java(version)).level is Level.OK


@pytest.mark.parametrize("version", [None, "1.8.0_392", "11.0.2"])
def test_a_missing_or_old_java_is_an_error_only_where_spark_is_needed(java, version):
    subject = java(version)
    assert only("java", subject).level is Level.ERROR
    assert "openjdk-17" in only("java", subject).remedy
    assert only("java", replace(subject, needs_spark=False)).level is Level.WARNING


def test_packages_that_do_not_fit_together_are_named():
    versions = {"deltalake": "0.9.0", "pyarrow": "19.0"}
    finding = only("packages", with_machine(version_of=lambda name: versions.get(name) or installed(name)))
    assert finding.level is Level.ERROR
    assert "needs deltalake" in finding.message
    assert ", not 0.9.0" in finding.message
    assert "pyarrow" in finding.message


def test_a_delta_jar_for_another_spark_is_a_warning_and_none_is_fine():
    other = with_machine(version_of=lambda name: "4.9.0" if name == "pyspark" else installed(name))
    assert only("delta jar", other).level is Level.WARNING
    none = with_machine(version_of=lambda name: None if name == "delta-spark" else installed(name))
    assert only("delta jar", none).level is Level.OK


def test_a_pyspark_without_its_jars_is_an_error():
    assert only("pyspark", with_machine(version_of=lambda name: "9.9.9")).level is Level.ERROR
    assert only("pyspark", with_machine(version_of=lambda name: None)).level is Level.ERROR


@pytest.mark.parametrize(("version", "clauses", "fits"), [
    ("1.6.6", "<2,>=1.6", True), ("2.0", "<2,>=1.6", False), ("1.10.0", ">=1.9", True), ("4.2.0", "==4.2.0", True),
    ("4.2", "==4.2.0", True), ("3.0.0", "!=3.0.0", False), ("5", "", True), ("26.0.1", ">=21", True),
    ("1.0", "~=2.0", False), ("2.9", "~=2.0", True), ("3.0", "~=2.0", False), ("2.1.0", "~=2.0.1", False),
    ("4.2.7", "==4.2.*", True), ("4.3.0", "==4.2.*", False), ("4.2.0", "===4.2.0", True), ("2.0rc1", ">=2.0", False),
    ("2.1rc1", ">=2.0", True), ("1!1.0", "<2", False), ("2.0.post1", ">2.0", False), ("1.0+cpu", "==1.0", True),
])  # fmt: skip
def test_version_clauses_are_understood(version, clauses, fits):
    needs = {"deltalake": [f"pyarrow ({clauses})"]}
    machine = with_machine(
        version_of=lambda name: version if name == "pyarrow" else installed(name),
        requirements_of=lambda name: needs.get(name, []),
    )
    assert (only("packages", machine).level is Level.OK) is fits


@pytest.mark.parametrize(("line", "fits"), [
    ("pandas>=99; extra == 'sql'", False), ('Pandas>=99 ; extra == "sql" and python_version >= "3"', False),
    ("pandas>=99; python_version < '3'", True), ("pandas>=99; extra == 'sql' and python_version < '3'", True),
    ("pandas[all]>=99", False), ("other>=99", True),
])  # fmt: skip
def test_only_what_is_required_in_this_python_counts(line, fits):
    machine = with_machine(requirements_of=lambda name: [line] if name == "pyspark" else [])
    assert (only("packages", machine).level is Level.OK) is fits


@pytest.mark.parametrize(("limit", "level"), [(100, "error"), (512, "warning"), (2048, "ok")])
def test_a_low_limit_of_open_files_is_noticed(limit, level):
    script = (
        f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit}));"
        "from ticklake.doctor import CHECKS, Subject; print(*[one.level for one in CHECKS['open files'](Subject())])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == level


# Places


def space(free: int, total: int = 1 << 40, inodes: int = 1 << 30) -> Machine:
    return replace(
        Machine(), statvfs=lambda _: os.statvfs_result((1, 1, total, free, free, 1 << 30, inodes, inodes, 0, 255))
    )


@pytest.mark.parametrize(
    ("free", "level"),
    [(100 << 20, Level.ERROR), (1 << 30, Level.WARNING), (1 << 35, Level.WARNING), (1 << 39, Level.OK)],
)
def test_little_space_is_a_warning_and_none_an_error(tmp_path, free, level):
    finding = only("disk space", Subject(storages=(tmp_path / "not" / "there",), machine=space(free)))
    assert finding.level == level
    assert str(tmp_path) in finding.message


def test_space_is_looked_at_for_storage_lake_and_sqlite(tmp_path):
    subject = Subject((tmp_path,), (tmp_path / "lake",), (Store(f"sqlite:///{tmp_path}/db"), Store("postgresql://h/d")))
    assert [one.message.split()[0] for one in found("disk space", subject)] == ["storage", "lake", "database"]


def test_a_file_where_a_directory_should_be_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    assert only("permissions", Subject(storages=(tmp_path / "file",))).level is Level.ERROR
    assert only("permissions", Subject(storages=(tmp_path / "new",))).level is Level.OK


@pytest.mark.parametrize(("kind", "level"), [("nfs4", "warning"), ("cifs", "warning"), ("9p", "warning"),
                                             ("fuse.sshfs", "warning"), ("ext4", "ok"), ("overlay", "ok")])  # fmt: skip
def test_sqlite_on_a_network_file_system_is_a_warning(tmp_path, kind, level):
    folder = tmp_path / "shared disk"
    folder.mkdir()
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda / ext4 rw 0 0\nhost:/x {str(folder).replace(' ', chr(92) + '040')} {kind} rw 0 0\n")
    subject = Subject(stores=(Store(f"sqlite:///{folder}/db"),), machine=replace(Machine(), mounts=mounts))
    assert only("file system", subject).level == level


def test_files_of_killed_writers_are_found_once_they_are_old(tmp_path):
    storage = tmp_path / "storage"
    (storage / "run" / "000").mkdir(parents=True)
    file = storage / "run" / "000" / ".batch_0_9.pb.123-abcd.tmp"
    file.touch()
    assert only("abandoned files", Subject(storages=(storage,))).level is Level.OK
    os.utime(file, (0, 0))
    finding = only("abandoned files", Subject(storages=(storage,)))
    assert finding.level is Level.WARNING
    assert finding.details == (str(file),)
    subprocess.run(finding.remedy, shell=True, check=True)
    assert only("abandoned files", Subject(storages=(storage,))).level is Level.OK


def test_parquet_files_that_no_commit_knows_are_found_and_those_of_older_versions_are_not(tmp_path):
    table = tmp_path / "lake" / "run" / "organism_data"
    for mode in ("append", "overwrite"):
        write_deltalake(table, pa.table({"tick_number": pa.array([1], pa.int64())}), mode=mode)
    for file in table.glob("*.parquet"):
        os.utime(file, (0, 0))
    subject = Subject(lakes=(tmp_path / "lake",))
    assert only("orphaned files", subject).level is Level.OK
    orphan = table / "flush-0000-0-0000.parquet"
    orphan.touch()
    assert only("orphaned files", subject).level is Level.OK
    os.utime(orphan, (0, 0))
    assert only("orphaned files", subject).details == (str(orphan),)


# Databases


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of its own: the doctor looks at every run that it finds."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'db'}"
        return
    server, name = request.getfixturevalue("postgres_url"), f"doctor_{uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True) as administrator:
        administrator.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
        administrator.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@pytest.fixture
def subject(database_url: str) -> Iterator[Subject]:
    with Subject(stores=(Store(database_url),)) as made:
        yield made


def test_what_was_not_examined_is_not_called_fine(subject, database_url):
    with Database(database_url) as database:
        for number in range(NEWEST_RUNS + 1):
            database.run(f"20260101-000000-{number:08x}").topics()
    for check in ("schema version", "stuck claims"):
        assert f"in the newest {NEWEST_RUNS} of {NEWEST_RUNS + 1} runs" in only(check, subject).message


def many_runs(database: Database) -> list[str]:
    """More runs than the newest; the first one has something of everything."""
    names = [f"20260101-000000-{number:08x}" for number in range(NEWEST_RUNS + 5)]
    for name in names:
        database.run(name).topics()
    run = database.run(names[0])
    with run.writer("batch-topic") as writer:
        writer.send_many([BatchInfo(simulation_run_id=run.id, tick_start=at) for at in range(65)])
    with run.reader("batch-topic", group="indexer", max_delivery_attempts=1) as reader:
        reader.fail(reader.poll(5), "broken")
    Coordinator(run, "EnvironmentIndexer", step=1).claim([FoundFile("b", TickRange(100, 199))], 1)
    return names


def let_time_pass(database: Database, run_id: str, seconds: int) -> None:
    change = "created_at = created_at - {}".format(
        f"{seconds * 1000}" if database.url.startswith("sqlite") else f"interval '{seconds} seconds'"
    )
    with database.run(run_id).transaction() as transaction:
        transaction.execute_script(f"UPDATE topic_messages SET {change}")


@pytest.mark.warns("DEAD_LETTER")
def test_a_run_that_is_not_among_the_newest_is_found_with_its_backlog_and_no_reader(subject, database_url):
    with Database(database_url) as database:
        names = many_runs(database)
        let_time_pass(database, names[0], 24 * 3600)
    finding = only("backlog", subject)
    assert finding.level is Level.WARNING
    assert ": 64 messages that nobody reads, of 1 runs. The oldest is 1.0 d old" in finding.message
    assert finding.details == (f"{names[0]}: 64 of indexer on batch-topic, 1.0 d old",)
    assert f"ticklake index {names[0]} --storage DIR --lake DIR --database " in finding.remedy
    assert ": 1 dead letters, most of them" in only("dead letters", subject).message
    assert ": 1 pending gaps, most of them" in only("gaps", subject).message
    assert names[0] in only("dead letters", subject).remedy and names[0] in only("gaps", subject).remedy


@pytest.mark.warns("DEAD_LETTER")
def test_messages_that_are_young_or_that_a_consumer_holds_have_a_reader(subject, database_url):
    with Database(database_url) as database:
        names = many_runs(database)
        assert only("backlog", subject).level is Level.OK, "they are young"
        let_time_pass(database, names[0], 24 * 3600)
        with database.run(names[0]).reader("batch-topic", group="indexer", claim_timeout=3600) as reader:
            assert reader.poll(5) is not None
            with Subject(stores=(Store(database_url),)) as again:
                assert only("backlog", again).level is Level.OK
        with Subject(stores=(Store(database_url),)) as after:
            assert only("backlog", after).level is Level.WARNING


def test_messages_that_no_group_reads_are_found(subject, database_url):
    with Database(database_url) as database:
        run = database.run("20260101-000000-00000000")
        with run.writer("batch-topic") as writer:
            writer.send(BatchInfo(simulation_run_id=run.id))
        let_time_pass(database, run.id, 3600)
    assert only("backlog", subject).details == (f"{run.id}: 1 without a group, 1.0 h old",)


def test_the_doctor_says_how_many_backlogs_it_had_time_for(subject, database_url, monkeypatch):
    monkeypatch.setattr(backlogs, "OPENED", 5)
    monkeypatch.setattr("ticklake.doctor.subject.BACKLOG_SECONDS", 0)
    with Database(database_url) as database:
        for number in range(8):
            database.run(f"20260101-000000-{number:08x}").topics()
    for check in ("backlog", "gaps", "dead letters"):
        assert only(check, subject).message.endswith(" in 5 of 8 runs")


def test_a_database_that_goes_away_during_the_check_is_not_called_fine(database_url):
    if database_url.startswith("sqlite"):
        pytest.skip("a directory has no connection that ends")
    with Subject(stores=(Store(database_url),)) as subject:
        assert subject.stores[0].failure is None
        subject.stores[0].database.close()
        for check in ("backlog", "gaps", "dead letters"):
            assert only(check, subject).level is Level.ERROR


def test_a_database_that_answers_is_fine(run, subject):
    run.topics()
    for check in ("database", "schema version", "stuck claims", "backlog", "gaps", "dead letters"):
        assert {one.level for one in found(check, subject)} <= {Level.OK}


@pytest.mark.parametrize("url", ["postgresql://ann:hunter2@127.0.0.1:1/none", "sqlite:////proc/none"])
def test_a_database_that_does_not_answer_is_one_error_without_its_password(url):
    with Subject(stores=(Store(url),)) as subject:
        findings = [one for check in ("database", "schema version", "clock", "gaps") for one in found(check, subject)]
    if url.startswith("postgresql"):
        assert [one.level for one in findings] == [Level.ERROR]
    assert "hunter2" not in str(findings)


def test_a_stuck_claim_is_found_and_the_remedy_releases_it(run, subject, database_url, batch, pass_time):
    with run.writer("t") as writer:
        writer.send(batch(1))
    reader = run.reader("t", group="g", claim_timeout=0.001)
    assert reader.poll(5)
    with run.transaction() as transaction:
        transaction.execute_script("UPDATE topic_consumer_group SET lease_until = 1")
    finding = only("stuck claims", subject)
    assert finding.level is Level.WARNING
    command = finding.remedy.split()[1:]
    assert CliRunner().invoke(cli, command, catch_exceptions=False).stdout == "Released 1 claims.\n"
    assert troubles("stuck claims", subject) == []
    reader.close()


def test_dead_letters_are_counted(run, subject, batch):
    with run.writer("t") as writer:
        writer.send(batch(1))
    with run.reader("t", group="g", max_delivery_attempts=1) as reader:
        assert reader.poll(5)
    with run.transaction() as transaction:
        transaction.execute_script(
            "INSERT INTO topic_dead_letters (topic_name, consumer_group, message_id, id, envelope, attempts, error,"
            " traceback, dead_at) SELECT topic_name, 'g', message_id, id, envelope, 1, 'no', '', created_at"
            " FROM topic_messages"
        )
    finding = only("dead letters", subject)
    assert "ticklake dead-letters list --database" in finding.remedy


def test_gaps_are_counted_and_looking_makes_no_tables(run, subject):
    run.topics()
    assert troubles("gaps", subject) == []
    assert not run.has_tables_of("ticklake.coordination")
    Coordinator(run, "EnvironmentIndexer", step=1).claim([FoundFile("b", TickRange(100, 199))], 1)
    finding = only("gaps", subject)
    assert (finding.level, finding.details) == (Level.WARNING, (f"{run.id}: 1",))
    assert finding.remedy.startswith("ticklake reconcile")


def test_gaps_of_tables_of_another_lake_are_not_counted(run, subject, tmp_path):
    """Somebody else's tables may be coordinated in the same run."""
    lake = Lake(tmp_path / "lake")
    ours = lake.ledger(run.id, EnvironmentIndexer.table).location
    for table in (Target.at(table_id(ours) or "", ours.url), Target("another-id", "file:///elsewhere", "host")):
        Coordinator(run, "EnvironmentIndexer", step=1, table=table).claim([FoundFile("b", TickRange(100, 199))], 1)
    assert only("gaps", subject).details == (f"{run.id}: 2",)
    assert only("gaps", replace(subject, lakes=(Path(str(lake.root)),))).details == (f"{run.id}: 1",)
    assert troubles("gaps", replace(subject, lakes=(tmp_path / "empty",))) == []


def record_version(run, version: int) -> None:
    with run.transaction() as transaction:
        transaction.execute_script(
            "DELETE FROM schema_versions WHERE package = 'ticklake.topics';"
            f"INSERT INTO schema_versions (package, version) VALUES ('ticklake.topics', {version})"
        )


def test_tables_of_another_version_are_noticed_and_left_alone(run, subject):
    run.topics()
    record_version(run, 99)
    finding = only("schema version", subject)
    assert finding.level is Level.ERROR
    assert "ticklake.topics" in finding.message
    assert "version 99, but this TickLake knows" in finding.message
    record_version(run, 0)
    assert "ticklake db upgrade" in "".join(one.remedy for one in found("schema version", subject))
    assert [one.version for one in run.versions()] == [0]


def test_a_clock_that_differs_is_a_warning(run, subject, pass_time, database_url):
    run.topics()
    if database_url.startswith("sqlite"):
        assert found("clock", subject) == []
        return
    assert only("clock", subject).level is Level.OK
    pass_time(60)
    finding = only("clock", subject)
    assert finding.level is Level.WARNING
    assert "60.0 s ahead of this machine" in finding.message


# The whole


def test_a_check_that_fails_is_a_finding_and_the_others_go_on(tmp_path):
    def broken(_: Path):
        raise ValueError("two\nlines")

    subject = Subject(storages=(tmp_path,), machine=replace(Machine(), statvfs=broken))
    findings = list(examine(subject))
    (failed,) = [one for one in findings if one.level is Level.ERROR]
    assert (failed.check, failed.message) == ("disk space", "The check itself failed: two lines")
    assert findings[-1].check == "abandoned files"


def test_a_configuration_names_all_that_is_examined(tmp_path):
    subject = Subject.of(load(write_starter(tmp_path)))
    assert subject.storages == (tmp_path / "data" / "storage",)
    assert subject.lakes == (tmp_path / "data" / "lake",)
    assert [store.directory for store in subject.stores] == [tmp_path / "data" / "database"]


def test_the_command_prints_a_line_each_and_its_exit_code_tells_of_errors(tmp_path):
    def doctor(*arguments):
        environment = {"TICKLAKE_STORAGE": None, "TICKLAKE_LAKE": None, "TICKLAKE_DATABASE": None}
        return CliRunner().invoke(cli, ["doctor", *map(str, arguments)], catch_exceptions=False, env=environment)

    file = write_starter(tmp_path)
    Storage(tmp_path / "data" / "storage")
    fine = doctor("--config", file)
    assert fine.exit_code == 0
    assert "✓ python" in fine.stdout
    assert "0 errors" in fine.stdout
    (tmp_path / "a file").touch()
    broken = doctor("--storage", tmp_path / "a file", "--json")
    assert broken.exit_code == 1
    findings = json.loads(broken.stdout)["findings"]
    assert {"check", "level", "message", "remedy", "details"} == set(findings[0])
    assert [one["check"] for one in findings if one["level"] == "error"] == ["permissions"]
    with Database(f"sqlite:///{tmp_path}/db") as database:
        database.run("r").topics()
    assert "has 1 runs" in doctor("--database", f"sqlite:///{tmp_path}/db").stdout
