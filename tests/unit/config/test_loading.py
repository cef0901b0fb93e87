"""What a configuration may look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from ticklake.config import Binding
from ticklake.config.options import (
    DatabaseOptions,
    EnvironmentIndexerOptions,
    LakeOptions,
    PersistenceOptions,
    QueueOptions,
    StorageOptions,
    TopicOptions,
)
from ticklake.errors import BadDatabaseUrl, BadValue
from ticklake.topics import Database


def options_of(load_text, body: str):
    return load_text(f"services {{ environment-indexer {{ {body} }} }}").services["environment-indexer"].options


@pytest.mark.parametrize(
    "wrapper", ["{}", "pipeline {{ {} }}", "evochora {{ datapipeline {{ {} }} }}", "evochora.datapipeline {{ {} }}"]
)
def test_resources_and_services_may_stand_at_the_top_or_in_the_originals_wrappers(load_text, wrapper):
    service = 'dummy-indexer { resources { a = "storage-read:s" } }'
    body = f"resources {{ s {{ class = Storage, path = x }} }}, services {{ {service} }}"
    settings = load_text(wrapper.format(body), before="")
    assert list(settings.resources) == ["s"]
    assert settings.services["dummy-indexer"].bindings == {"a": Binding("storage-read", "s")}


@pytest.mark.parametrize("key", ["insertBatchSize", "insert_batch_size", "insert-batch-size"])
@pytest.mark.parametrize("place", ["{}", "options {{ {} }}"])
def test_options_may_be_spelled_in_any_case_inside_options_or_beside_them(load_text, key, place):
    assert options_of(load_text, place.format(f"{key} = 7")).insert_batch_size == 7


@pytest.mark.parametrize(
    ("name", "line", "class_name"),
    [
        ("x", 'className = "org.evochora.datapipeline.services.indexers.DummyIndexer"', "DummyIndexer"),
        ("x", "type = OrganismIndexer", "OrganismIndexer"),
        ("x", "class = environment-indexer", "EnvironmentIndexer"),
        ("dummy-indexer-2", "", "DummyIndexer"),
        ("MetadataIndexer", "", "MetadataIndexer"),
        ("persistence-service-1", "", "PersistenceService"),
        ("x", 'class = "my.module:OwnIndexer"', "my.module:OwnIndexer"),
    ],
)
def test_a_class_is_found_by_its_last_part_or_by_the_services_name(load_text, name, line, class_name):
    assert load_text(f"services {{ {name} {{ {line} }} }}").services[name].class_name == class_name


def test_without_options_the_documented_defaults_hold(load_text):
    assert options_of(load_text, "") == EnvironmentIndexerOptions()


def test_a_pool_of_one_connection_needs_no_other_option(load_text):
    for options in ("class = Database, path = y", "class = Topic, url = 'sqlite:///y'".replace("'", '"')):
        settings = load_text(f"resources {{ x {{ {options}, max_pool_size = 1 }} }}")
        assert settings.resources["x"].options.min_idle == 1
    assert settings.database_of("x").min_idle == 1


@pytest.mark.parametrize(
    ("written", "milliseconds"),
    [
        ("1500", 1500),
        ("5s", 5000),
        ("5 seconds", 5000),
        ('"5 s"', 5000),
        ("2 minutes", 120_000),
        ("500ms", 500),
        ("1h", 3_600_000),
    ],
)
def test_times_in_milliseconds_take_units(load_text, written, milliseconds):
    assert options_of(load_text, f"flushTimeoutMs = {written}").flush_timeout_ms == milliseconds


@pytest.mark.parametrize(
    ("written", "seconds"), [("300", 300), ("0", 0), ("5 minutes", 300), ("250 ms", 0.25), ('"1 d"', 86400)]
)
def test_times_in_seconds_take_units(load_text, written, seconds):
    topics = load_text(f"resources.t {{ class = Topic, database = index-database, claimTimeout = {written} }}")
    assert topics.resources["t"].options.claim_timeout == seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("1000", 1000),
        ("64 MiB", 64 << 20),
        ('"64m"', 64 << 20),
        ("64MB", 64_000_000),
        ('"1.5 KiB"', 1536),
        ("2 GB", 2_000_000_000),
    ],
)
def test_sizes_take_units(load_text, written, size):
    queue = load_text(f"resources.q {{ class = Queue, max_bytes = {written} }}").resources["q"].options
    assert queue == QueueOptions(max_bytes=size)


def test_paths_are_relative_to_the_file_and_know_home_and_environment(load_text, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("DATA", "/srv/data")
    text = """
    resources { a { class = Storage, path = data/x }, b { class = Storage, path = "${DATA}/x" }
                c { class = Storage, path = "${user.home}/x" }, d { class = Storage, rootDirectory = ~/x }
                e { class = Storage, path = ${DATA}"/y" }, f { class = Storage, path = "s3://bucket/x" } }"""
    found = {name: resource.options.path for name, resource in load_text(text, before="").resources.items()}
    home = str(Path.home())
    assert found == {
        "a": str(tmp_path / "data/x"), "b": "/srv/data/x", "c": f"{home}/x", "d": f"{home}/x",
        "e": "/srv/data/y", "f": "s3://bucket/x",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ('url = "sqlite:///db"', "sqlite:///{base}/db"),
        ('url = "sqlite:////srv/db"', "sqlite:////srv/db"),
        ('dbPath = "./data/topics/batches"', "sqlite:///{base}/data/topics/batches"),
        ('jdbcUrl = "jdbc:h2:/srv/evochora;MODE=PostgreSQL;AUTO_SERVER=TRUE"', "sqlite:////srv/evochora"),
        ('jdbcUrl = "jdbc:h2:file:./x"', "sqlite:///{base}/x"),
        ('jdbcUrl = "jdbc:postgresql://db.example/ticks"', "postgresql://db.example/ticks"),
        ('url = "postgresql://ann@db.example/ticks"', "postgresql://ann@db.example/ticks"),
    ],
)
def test_a_database_is_a_directory_or_postgresql_whatever_it_was_called(load_text, tmp_path, written, url):
    found = load_text(f"resources.d {{ class = Database, {written} }}").resources["d"].options
    assert found == DatabaseOptions.model_construct(url=url.format(base=tmp_path))


@pytest.mark.parametrize(
    ("written", "dsn"),
    [
        ('url = "postgresql:///ticks"', "postgresql:///ticks"),
        ('url = "postgresql:///ticks?host=/tmp"', "postgresql:///ticks?host=/tmp"),
        ('url = "postgresql://@/ticks"', "postgresql:///ticks"),
        ('url = "postgresql:///ticks?password="${DB_SECRET}', "postgresql://:pw@/ticks"),
        ('url = "postgresql:///ticks", username = ann, password = ${DB_SECRET}', "postgresql://ann:pw@/ticks"),
        ('url = "postgresql://one:5432,two:5433/ticks"', "postgresql://one:5432,two:5433/ticks"),
        ('url = "postgresql://db/ticks?sslmode=verify-full"', "postgresql://db/ticks?sslmode=verify-full"),
    ],
)
def test_every_url_that_postgresql_takes_can_be_configured(load_text, monkeypatch, written, dsn):
    monkeypatch.setenv("DB_SECRET", "pw")
    found = load_text(f"resources {{ x {{ class = Database, {written} }} }}").resources["x"].options.dsn()
    assert found == dsn
    Database(found).close()


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("postgresql://localhost:99999/x", "'99999' is not a port"),
        ("postgresql://localhost:notaport/x", "'notaport' is not a port"),
        ("postgresql://one:5432,two:0/x", "'0' is not a port"),
        ("postgresql:///x?port=-1", "'-1' is not a port"),
        ("postgresql://localhost/x?sslmode=maybe", "sslmode cannot be 'maybe'; allowed: disable, allow,"),
        ("postgresql://localhost/x?target_session_attrs=any-at-all", "target_session_attrs cannot be"),
        ("postgresql://localhost/x?nosuchoption=1", "nosuchoption"),
        ("postgresql://local%zzhost/x", "percent-encoded"),
    ],
)
def test_a_url_that_can_never_work_is_refused_wherever_it_is_given(load_text, url, reason):
    with pytest.raises(BadValue) as configured:
        load_text(f'resources {{ x {{ class = Database, url = "{url}" }} }}')
    with pytest.raises(BadDatabaseUrl) as given:
        Database(url)
    assert reason in str(configured.value) and reason in str(given.value)


def test_what_is_wrong_with_a_password_is_said_without_it():
    with pytest.raises(BadDatabaseUrl, match="its password is not percent-encoded") as refused:
        Database("postgresql://ann:hush%zz@localhost/x")
    assert "hush" not in str(refused.value)


def test_a_topic_may_name_its_database_or_bring_its_own(load_text):
    own = 'resources.own { class = H2TopicResource, dbPath = "/srv/x", maxPoolSize = 3, claimTimeout = 600 }'
    settings = load_text(own)
    assert settings.database_of("batch-topic") is settings.resources["index-database"].options
    assert settings.database_of("own").url == "sqlite:////srv/x"
    assert settings.database_of("own").max_pool_size == 3


def test_sparks_own_settings_pass_through_by_their_full_names(load_text):
    text = """resources.l { class = Lake, path = x, spark {
        master = "spark://host:7077", "spark.executor.memory" = 2g, spark.ui.enabled = false
        settings { spark.sql.shuffle.partitions = 4 } } }"""
    spark = load_text(text).resources["l"].options.spark
    assert spark.master == "spark://host:7077"
    assert spark.settings == {
        "spark.executor.memory": "2g", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4",
    }  # fmt: skip


def test_optional_references_may_be_missing_and_come_from_file_or_environment(load_text, monkeypatch):
    assert options_of(load_text, "run_id = ${?nowhere.run}").run_id is None
    monkeypatch.setenv("THE_RUN", "20251014-143025-550e8400")
    assert options_of(load_text, "run_id = ${?THE_RUN}").run_id == "20251014-143025-550e8400"
    settings = load_text("vars { size = 9 }, services { dummy-indexer { insertBatchSize = ${vars.size} } }")
    assert settings.services["dummy-indexer"].options.insert_batch_size == 9


def test_one_run_id_holds_for_all_services_that_do_not_set_their_own(load_text):
    settings = load_text(
        'services { runId = "a", dummy-indexer {}, organism-indexer { runId = "b" }, persistence-service {} }'
    )
    assert settings.services["dummy-indexer"].options.run_id == "a"
    assert settings.services["organism-indexer"].options.run_id == "b"
    assert settings.services["persistence-service"].options == PersistenceOptions()


def test_services_stay_in_the_order_of_the_file(load_text):
    names = ["simulation", "organism-indexer", "dummy-indexer", "environment-indexer", "metadata-indexer"]
    text = "vars { n = 3 }\n services {" + "\n".join(f"{name} {{ run_id = ${{?n}} }}" for name in names) + "}"
    assert list(load_text(text).services) == names


def test_included_files_are_read_relative_to_the_one_that_includes(load_text, tmp_path: Path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "storage.conf").write_text('resources { s { class = Storage, path = "/srv/s" } }')
    (tmp_path / "parts" / "all.conf").write_text('include "storage.conf"')
    settings = load_text('include "parts/all.conf"', before="")
    assert settings.resources["s"].options == StorageOptions(path="/srv/s")


def test_a_service_uses_what_it_is_bound_to_or_else_the_only_one_of_its_kind(load_text):
    other = "resources.other { class = Storage, path = y }"
    settings = load_text(
        f'{other}, services {{ a {{ class = DummyIndexer, resources {{ s = "storage-read:other" }} }} }}'
    )
    assert settings.of_kind("a", "Storage").name == "other"
    assert settings.of_kind("a", "Lake").name == "lake"
    settings.check_complete()


def test_a_binding_is_found_by_its_usage(load_text):
    text = 'services { a { class = DummyIndexer, resources { in = "topic-read:batch-topic?consumerGroup=g" } } }'
    service = load_text(text).services["a"]
    assert service.bound("topic-read") == Binding("topic-read", "batch-topic", "g")
    assert service.bound("topic-write") is None


def test_settings_cannot_be_changed(load_text):
    with pytest.raises(ValueError, match="frozen"):
        options_of(load_text, "").run_id = "x"


def test_json_is_hocon_too(load_text):
    settings = load_text('{"resources": {"l": {"class": "Lake", "options": {"path": "/x"}}}}', before="")
    assert settings.resources["l"].options == LakeOptions(path="/x")


def test_a_topic_keeps_its_own_options(load_text):
    found = load_text("resources.t { class = Topic, database = index-database, max_delivery_attempts = 9 }").resources[
        "t"
    ]
    assert found.options == TopicOptions(database="index-database", max_delivery_attempts=9)
