"""Every mistake is one line that names the file, the line, the key and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from ticklake import errors
from ticklake.config import load


def mistake(load_text, kind: type[errors.TickLakeError], text: str, **more: str) -> str:
    with pytest.raises(kind) as caught:
        load_text(text, **more)
    message = str(caught.value)
    assert "\n" not in message
    return message


def service(body: str) -> str:
    return f"services {{\n  dummy-indexer {{\n    {body}\n  }}\n}}"


# The line of `body` above, in a file that starts with the ten lines of resources.
LINE = "node.conf:12: "


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            "options { insertBatchSiz = 3 }",
            "services.dummy-indexer.options.insertBatchSiz; did you mean 'insert_batch_size'?",
        ),
        ("flushTimeout = 3", "did you mean 'flush_timeout_ms'?"),
        ("zzz = 3", "unknown key services.dummy-indexer.zzz. Allowed here: class, className, enable_idempotency,"),
        ("resourcs { }", "unknown key services.dummy-indexer.resourcs; did you mean 'resources'?"),
    ],
)
def test_an_unknown_key(load_text, body, expected):
    message = mistake(load_text, errors.UnknownKey, service(body))
    assert LINE in message
    assert expected in message


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("insertBatchSize = many", "options.insertBatchSize: must be a whole number."),
        ("insertBatchSize = 1.5", "must be a whole number"),
        ("insertBatchSize = 0", "options.insertBatchSize: must be 1 or more."),
        ("insertBatchSize = [1]", "must be a whole number"),
        ("insertBatchSize { a = 1 }", "must be a whole number"),
        ("enableIdempotency = perhaps", "must be true or false"),
        ("flushTimeoutMs = 5 fortnights", "must be a number with a unit: ms, s, m, h, d"),
        ("flushTimeoutMs = 3 months", "months and years have no fixed length"),
        ("flushTimeoutMs = -1", "must be 0 or more"),
        ("flushTimeoutMs = -5 s", "cannot be negative"),
        ("flushTimeoutMs = true", "cannot be true or false"),
        ("insertBatchSize = true", "cannot be true or false"),
        ("runId = [1, 2]", "must be text"),
    ],
)
def test_a_wrong_type_or_unit(load_text, body, reason):
    message = mistake(load_text, errors.BadValue, service(f"options {{ {body} }}"))
    assert LINE in message
    assert "services.dummy-indexer.options." in message
    assert reason in message


@pytest.mark.parametrize(
    ("uri", "kind", "expected"),
    [
        (
            "topic-red:batch-topic",
            errors.UnknownUsage,
            "'topic-red'; did you mean 'topic-read'? Supported: db-coordinator, db-idempotency",
        ),
        ("topic-read:batch-topic", errors.BindingWithoutGroup, "write topic-read:batch-topic?consumerGroup=GROUP"),
        (
            "topic-read:batch-topic?consumerGroup=",
            errors.BindingWithoutGroup,
            "write topic-read:batch-topic?consumerGroup=GROUP",
        ),
        ("topic-read:batch-topic?consumerGroup=%20", errors.BindingWithoutGroup, "consumerGroup=GROUP"),
        (
            "topic-read:batch-topic?group=x",
            errors.BadBinding,
            "'group' is not a parameter of topic-read; its only parameter is consumerGroup",
        ),
        (
            "topic-write:batch-topic?consumerGroup=x",
            errors.BadBinding,
            "'consumerGroup' is not a parameter of topic-write; it has no parameters",
        ),
        ("tick-storage", errors.BadBinding, "write USAGE:RESOURCE"),
        ("storage-read:", errors.BadBinding, "write USAGE:RESOURCE"),
        (
            "storage-read:tick-storag",
            errors.UnknownResource,
            "did you mean 'tick-storage'? Resources of kind Storage: tick-storage",
        ),
        ("storage-read:batch-topic", errors.WrongKind, "'batch-topic', which is of kind Topic, not Storage"),
    ],
)
def test_a_wrong_binding(load_text, uri, kind, expected):
    message = mistake(load_text, kind, service(f'resources {{ it = "{uri}" }}'))
    assert LINE in message
    assert "services.dummy-indexer.resources.it" in message
    assert expected in message


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (
            "service { }",
            errors.UnknownKey,
            "unknown key service; did you mean 'services'? Allowed here: node, resources, services, vars",
        ),
        ("pipeline { resource { } }", errors.UnknownKey, "unknown key pipeline.resource; did you mean 'resources'?"),
        ("services = 3", errors.BadValue, "node.conf:1: services: must be a block"),
        ("services { x = 3 }", errors.BadValue, "services.x: must be a block"),
        ("services { x { } }", errors.ClassMissing, "services.x needs a class; one of: BirthsIndexer"),
        ("services { x { class = DumyIndexer } }", errors.UnknownClass, "'DumyIndexer'; did you mean 'DummyIndexer'?"),
        (
            "resources { x { path = y } }",
            errors.ClassMissing,
            "one of: Database, EventQueue, Lake, Queue, Storage, Topic",
        ),
        ("resources { x { class = Storag } }", errors.UnknownClass, "did you mean 'Storage'? Allowed: Database"),
        ("resources { x { class = Storage } }", errors.BadValue, "resources.x.path: is missing"),
        ('resources { x { class = Storage, path = "" } }', errors.BadValue, "must be a directory"),
        (
            'resources { x { class = Storage, path = "${NOT_SET_ANYWHERE}/x" } }',
            errors.BadValue,
            "${NOT_SET_ANYWHERE} is not set",
        ),
        (
            "resources { x { class = Topic } }",
            errors.BadValue,
            "either database (the name of a Database resource) or url",
        ),
        ("resources { x { class = Topic, database = y } }", errors.UnknownResource, "'y', which is not a resource"),
        ('resources { x { class = Database, url = "mysql://x" } }', errors.BadValue, "must be sqlite:///DIRECTORY"),
        (
            'resources { x { class = Database, url = "jdbc:h2:mem:x" } }',
            errors.BadValue,
            "must be an H2 database in a file",
        ),
        (
            "resources { x { class = Database, path = y, min_idle = 11 } }",
            errors.BadValue,
            "min_idle (11) cannot be more",
        ),
        (
            "resources { x { class = Database, path = y, dbPath = z } }",
            errors.BadValue,
            "is already given as resources.x.path",
        ),
        (
            "resources { x { class = Lake, path = y, spark { mastr = z } } }",
            errors.UnknownKey,
            "unknown key resources.x.spark.mastr; did you mean 'master'? Allowed here: master, settings, spark.…",
        ),
        (
            "services { x { class = DummyIndexer, options = 3 } }",
            errors.BadValue,
            "services.x.options: must be a block",
        ),
        ("services { x { class = DummyIndexer, options = false } }", errors.BadValue, "must be a block"),
        (
            "services { x { class = DummyIndexer, type = DummyIndexer } }",
            errors.BadValue,
            "services.x.type: is already given as class",
        ),
        ("services { simulation { shape = [200] } }", errors.BadValue, "shape: must have 2 items, not 1"),
        ("services { runId = [1] }", errors.BadValue, "services.runId: must be text in quotes"),
        (
            'resources { x { class = Storage, path = "~nobody-at-all/x" } }',
            errors.BadValue,
            "the home directory of this user is unknown",
        ),
        ('resources { x { class = Database, url = "postgresql://[::1/x" } }', errors.BadValue, "invalid IPv6 URL"),
        (
            "services { x { class = DummyIndexer, resources = 3 } }",
            errors.BadValue,
            "services.x.resources: must be a block",
        ),
        (
            "services { x { class = DummyIndexer, resources { a = 3 } } }",
            errors.BadValue,
            "must be a binding in quotes",
        ),
    ],
)
def test_a_wrong_section_class_or_resource(load_text, text, kind, expected):
    message = mistake(load_text, kind, text, before="")
    assert "node.conf:1: " in message
    assert expected in message


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("a {\n b = 1\n", errors.ConfigSyntax, "node.conf:1: the { in this line is never closed"),
        ("vars {\n a = [1, 2\n", errors.ConfigSyntax, "node.conf:2: the [ in this line is never closed"),
        ("vars { }\n}", errors.ConfigSyntax, "node.conf:2: this } has no opening counterpart"),
        (
            'vars { a "b" }',
            errors.ConfigSyntax,
            "node.conf:1: '\"' is unexpected here: a key needs `=`, `:` or `{` after it",
        ),
        ('resources {\n  a = "b', errors.ConfigSyntax, "node.conf:"),
        ("[1, 2]", errors.ConfigSyntax, "not a list"),
        (
            "vars { size = 3 \n a = ${vars.siz} }",
            errors.UnknownReference,
            "node.conf:2: ${vars.siz} is defined neither in the configuration nor in the environment;"
            " did you mean 'vars.size'?",
        ),
        (
            "vars { a = ${vars.b}\n b = ${vars.a} }",
            errors.ConfigSyntax,
            "references form a cycle: ${vars.b}, ${vars.a}",
        ),
        (
            "vars { a = [1]\n a += 2 }",
            errors.AppendNotSupported,
            "node.conf:2: `a +=` is not supported; write `a = ${?vars.a} [more]`",
        ),
        ('\n include "gone.conf"', errors.IncludeNotFound, "gone.conf does not exist"),
        ('include "node.conf"', errors.IncludeCycle, "node.conf includes itself"),
        ('include url("http://example.com/x.conf")', errors.ConfigSyntax, "only files can be included"),
        ("a = " + "[" * 400, errors.ConfigSyntax, "nesting is too deep"),
    ],
)
def test_text_that_cannot_be_read(load_text, text, kind, expected):
    assert expected in mistake(load_text, kind, text, before="")


def test_a_missing_include_names_the_file_that_may_be_meant(load_text, tmp_path: Path):
    (tmp_path / "places.conf").touch()
    message = mistake(load_text, errors.IncludeNotFound, 'include "place.conf"', before="")
    assert "place.conf does not exist; did you mean 'places.conf'?" in message


def test_two_services_with_one_name_are_not_merged(load_text):
    text = "services {\n dummy-indexer { insertBatchSize = 1 }\n dummy-indexer { flushTimeoutMs = 2 }\n}"
    message = mistake(load_text, errors.DefinedTwice, text, before="")
    assert "node.conf:3: services.dummy-indexer is already defined in line 2" in message


def test_an_override_of_single_keys_is_no_second_definition(load_text):
    text = "services { dummy-indexer { insertBatchSize = 1 } }\nservices.dummy-indexer.insertBatchSize = 5"
    assert load_text(text).services["dummy-indexer"].options.insert_batch_size == 5


def test_a_service_that_lacks_a_resource_is_told_which(load_text):
    settings = load_text("services { persistence-service { } }")
    with pytest.raises(
        errors.BindingMissing,
        match=r"'persistence-service' needs a Topic but is bound to none; .* batch-topic, metadata-topic",
    ):
        settings.check_complete()


def test_a_missing_file_says_how_to_get_one(tmp_path: Path):
    with pytest.raises(errors.ConfigNotFound, match="`ticklake init` writes one"):
        load(tmp_path / "none.conf")
    with pytest.raises(errors.ConfigNotFound):
        load(tmp_path)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path):
    (tmp_path / "x.conf").write_bytes(b"\xff\xfe\x00a")
    with pytest.raises(errors.ConfigSyntax, match="not valid UTF-8"):
        load(tmp_path / "x.conf")


def test_an_error_in_an_included_file_names_that_file_and_line(load_text, tmp_path: Path):
    (tmp_path / "part.conf").write_text("resources {\n\n  s { class = Storage, pth = x }\n}")
    assert "part.conf:3: unknown key resources.s.pth" in mistake(
        load_text, errors.UnknownKey, 'include "part.conf"', before=""
    )


@pytest.mark.parametrize(
    ("part", "kind", "expected"),
    [
        ("vars {\n a = 1\n b \n", errors.ConfigSyntax, "part.conf:1: the { in this line is never closed"),
        ("vars {\n a = ${nowhere} }", errors.UnknownReference, "part.conf:2: ${nowhere}"),
    ],
)
def test_text_that_cannot_be_read_in_an_included_file_names_that_file(load_text, tmp_path: Path, part, kind, expected):
    (tmp_path / "part.conf").write_text(part)
    assert expected in mistake(load_text, kind, '\n\n\ninclude "part.conf"\n', before="")


@pytest.mark.parametrize("written", ["512m", "30s", "100ms"])
def test_a_setting_of_spark_that_hocon_takes_for_a_duration_is_refused(load_text, written):
    text = f'resources {{ lake {{ class = Lake, path = l, spark {{ "spark.driver.memory" = {written} }} }} }}'
    with pytest.raises(errors.BadValue, match="in quotes"):
        load_text(text, before="")
