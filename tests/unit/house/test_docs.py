"""Documentation cannot drift: every command and option is in it, every link leads somewhere."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ticklake.cli import cli

ROOT = Path(__file__).parents[3]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
COMMANDS = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")


def commands(group: click.Group = cli, name: str = "ticklake") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for word in group.list_commands(context):
        command = group.get_command(context, word)
        assert command is not None, word
        if isinstance(command, click.Group):
            yield from commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


@pytest.mark.parametrize(("name", "command"), [pytest.param(*found, id=found[0]) for found in commands()])
def test_every_command_and_option_is_documented(name: str, command: click.Command):
    (section,) = re.findall(rf"^## `{name}(?![\w-])[^\n]*\n(.*?)(?=^## |\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("--")]
    assert [option for option in options if f"`{option}" not in section] == []
    assert command.help


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text(encoding="utf-8"))
    local = [link for link in links if "://" not in link and not link.startswith("mailto:")]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_every_decision_is_listed():
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = sorted(path.name for path in (ROOT / "docs" / "decisions").glob("*.md"))
    assert len(pages) >= 12
    assert [page for page in pages if f"decisions/{page}" not in index] == []


def test_the_changelog_has_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_layers_in_contributing_are_those_that_are_checked():
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    (told,) = re.findall(r"Imports point down: (.*?)\. ", text, re.DOTALL)
    assert [re.findall(r"`(\w+)`", part) for part in told.split("→")] == [re.findall(r"\w+", layer) for layer in layers]


def test_the_map_in_contributing_names_every_package_and_module():
    source = ROOT / "src" / "ticklake"
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \|", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = [path for row in rows for path in re.findall(r"`([\w/.]+?)(?:/<\w+>\.py|/\*\.proto|/)?`", row)]
    tops = {path.name for path in source.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert sorted(tops - {path.split("/")[0] for path in named} - {"__init__.py", "__main__.py"}) == []
    rooms = [f"{room.parent.name}/{room.name}" for top in tops for room in (source / top).glob("*/")]
    rooms = [room for room in rooms if (source / room / "__init__.py").exists() and room != "topics/removed"]
    assert sorted(set(rooms) - {path.rstrip("/") for path in named}) == []


def test_the_figures_about_upkeep_are_those_of_the_code():
    from ticklake.lake.delta import log
    from ticklake.lake.upkeep import compaction, merging

    page = (ROOT / "docs" / "upkeep.md").read_text(encoding="utf-8")
    policy = compaction.Policy()
    assert f"merged\n{merging._ROWS_AT_ONCE:,} at a time" in page
    assert f"`fan_in` ({policy.fan_in})" in page and policy.growth == 4 and "four times as large" in page
    assert log._CHECKPOINT_EVERY == 100 and "Every hundredth commit" in page
