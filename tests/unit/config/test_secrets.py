"""Passwords come from the environment and go nowhere else."""

from __future__ import annotations

import pytest

from ticklake.config import showing
from ticklake.errors import SecretInFile, TickLakeError

SECRET = "hunter2-and-more"


@pytest.mark.parametrize(
    "line", [f'password = "{SECRET}"', f"password = {SECRET}", f'url = "postgresql://ann:{SECRET}@host/db"']
)
def test_a_password_written_into_the_file_is_refused_without_repeating_it(load_text, line):
    with pytest.raises(SecretInFile, match=r"node.conf:\d+: resources.d\.\w+ is written out") as caught:
        load_text(f'resources.d {{ class = Database, url = "postgresql://ann@host/db"\n {line} }}')
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
