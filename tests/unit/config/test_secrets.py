"""Passwords come from the environment and go nowhere else."""

from __future__ import annotations

import pytest

from ticklake.config import rendering as showing
from ticklake.database import open_backend
from ticklake.database.url import split_password
from ticklake.errors import SecretInFile, TickLakeError, UnknownDatabase

SECRET = "hunter2-and-more"


@pytest.mark.parametrize(
    "line", [f'password = "{SECRET}"', f"password = {SECRET}", f'url = "postgresql://ann:{SECRET}@host/db"']
)
def test_a_password_written_into_the_file_is_refused_without_repeating_it(load_text, line):
    with pytest.raises(SecretInFile, match=r"node.conf:\d+: resources.d\.\w+ contains a password") as caught:
        load_text(f'resources.d {{ class = Database, url = "postgresql://ann@host/db"\n {line} }}')
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("before", "body"),
    [
        (f'vars {{ pw = "{SECRET}" }}', '= { url = "postgresql://h/d", password = ${vars.pw}'),
        ("", f'{{ url = "postgresql://h/d?password={SECRET}"'),
        (f'vars {{ d {{ password = "{SECRET}" }} }}', '= ${vars.d} { url = "postgresql://h/d"'),
        ("", f'{{ url = "postgresql://h/d", password = {SECRET}, password = ${{?DB_SECRET}}'),
        (f'vars {{ at = "ann:{SECRET}@h" }}', '{ url = "postgresql://"${vars.at}"/d"'),
    ],
)
def test_a_password_in_the_file_is_found_however_it_gets_to_its_place(load_text, monkeypatch, before, body):
    monkeypatch.setenv("DB_SECRET", "other")
    with pytest.raises(SecretInFile) as caught:
        load_text(f"{before}\n resources.d {body}, class = Database }}")
    assert SECRET not in str(caught.value)


def test_a_url_of_which_only_the_password_is_the_environments_is_fine(load_text, monkeypatch):
    monkeypatch.setenv("DB_SECRET", SECRET)
    found = load_text('resources.d { class = Database, url = "postgresql://ann:"${DB_SECRET}"@h/d" }').resources["d"]
    assert found.options.url == "postgresql://ann@h/d"


def test_no_password_of_a_database_url_is_repeated(monkeypatch):
    for url in (f"mysql://ann:{SECRET}@h/d", f"postgresql://h/d?password={SECRET}&sslmode=require"):
        assert SECRET not in split_password(url)[0]
    with pytest.raises(UnknownDatabase) as caught:
        open_backend(f"mysql://ann:{SECRET}@h/d")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("line", ["password = ${?DB_SECRET}", "url = ${DB_URL}"])
def test_a_password_from_the_environment_is_used_and_never_shown(load_text, monkeypatch, line):
    monkeypatch.setenv("DB_SECRET", SECRET)
    monkeypatch.setenv("DB_URL", f"postgresql://ann:{SECRET}@host/db")
    settings = load_text(f'resources.d {{ class = Database, url = "postgresql://ann@host/db"\n {line} }}')
    options = settings.resources["d"].options
    assert options.password.get_secret_value() == SECRET
    assert options.dsn() == f"postgresql://ann:{SECRET}@host/db"
    shown = showing.show(settings, origin=True) + str(showing.as_dict(settings)) + repr(settings) + str(options)
    assert SECRET not in shown
    assert "# password is set" in shown


def test_an_error_beside_a_password_does_not_print_it(load_text, monkeypatch):
    monkeypatch.setenv("DB_SECRET", SECRET)
    with pytest.raises(TickLakeError) as caught:
        load_text('resources.d { class = Database, url = "postgresql://h/d", password = [${DB_SECRET}] }')
    assert SECRET not in str(caught.value)


def test_an_empty_password_is_no_secret(load_text):
    assert load_text('resources.d { class = Database, dbPath = x, username = "sa", password = "" }').resources["d"]


@pytest.mark.parametrize(
    ("given", "dsn"),
    [
        ('url = "postgresql://host/db", username = ann', "postgresql://ann@host/db"),
        (
            'url = "postgresql://host:5433/db", username = ann, password = ${DB_SECRET}',
            "postgresql://ann:p%40ss@host:5433/db",
        ),
        ("path = /srv/x, username = sa", "sqlite:////srv/x"),
    ],
)
def test_user_and_password_become_part_of_the_url_only_when_connecting(load_text, monkeypatch, given, dsn):
    monkeypatch.setenv("DB_SECRET", "p@ss")
    assert load_text(f"resources.d {{ class = Database, {given} }}").resources["d"].options.dsn() == dsn
