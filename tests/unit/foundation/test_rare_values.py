"""Names and values that are seldom asked for."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest

import ticklake
from ticklake import Database, errors
from ticklake.cli import help as help_texts
from ticklake.database.statements import migrations
from ticklake.doctor.subject import requirements
from ticklake.monitoring import Window
from ticklake.storage.files import Storage


def test_submodules_and_errors_are_found_by_name() -> None:
    assert ticklake.__getattr__("errors") is errors
    assert ticklake.__getattr__("__version__") == version("ticklake")
    assert "RunNotFound" in dir(errors)


def test_a_command_without_its_source_has_no_help(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = ModuleType("compiled_only")
    module.__file__ = str(tmp_path / "gone.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert help_texts._docstrings(module.__name__) == {}


def test_a_window_has_a_length() -> None:
    with pytest.raises(ValueError, match="longer than 0 seconds"):
        Window(0)


def test_a_package_without_tables_has_no_migrations() -> None:
    assert migrations("ticklake.lake", "sqlite") == ()


def test_a_statement_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Database(f"sqlite:///{tmp_path}") as database:
        run = database.run("r")
        with pytest.raises(AttributeError, match="There is no statement nothing; known: "), run.transaction() as one:
            _ = one.sql("ticklake.topics").nothing


def test_a_package_that_is_not_installed_requires_nothing() -> None:
    assert requirements("no-such-package-anywhere") == []


def test_a_storage_shows_its_place(tmp_path: Path) -> None:
    assert repr(Storage(tmp_path)) == f"Storage({str(tmp_path)!r})"
