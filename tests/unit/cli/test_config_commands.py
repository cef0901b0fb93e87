"""`ticklake config` and `ticklake init`."""

from __future__ import annotations

import pytest

from ticklake.errors import BindingMissing, UnknownKey


def test_init_writes_a_configuration_that_check_accepts(ticklake, report, tmp_path):
    folder = tmp_path / "node"
    assert f"ticklake run {folder}/ticklake.conf" in ticklake("init", folder).stdout
    assert ticklake("config", "check", folder / "ticklake.conf").stdout.endswith("valid, 7 resources and 9 services.\n")
    assert "environment-indexer" in report("config", "check", folder / "ticklake.conf")["services"]


def test_check_refuses_what_cannot_run(ticklake, tmp_path):
    file = tmp_path / "node.conf"
    file.write_text("services { persistence-service { } }")
    with pytest.raises(BindingMissing, match="needs a Queue"):
        ticklake("config", "check", file)
    file.write_text("servces { }")
    with pytest.raises(UnknownKey, match="did you mean 'services'"):
        ticklake("config", "check", file)


def test_show_writes_the_defaults_out_and_says_where_values_come_from(ticklake, report, tmp_path):
    ticklake("init", tmp_path)
    file = tmp_path / "ticklake.conf"
    shown = ticklake("config", "show", file).stdout
    assert "poll_interval_ms = 1000\n" in shown
    origins = ticklake("config", "show", file, "--origin").stdout
    assert "poll_interval_ms = 1000  # default, reference.conf:" in origins
    assert f"max_ticks = 2000  # {file}:" in origins
    assert report("config", "show", file)["services"]["simulation"]["options"]["max_ticks"] == 2000


def test_show_without_a_file_documents_every_option(ticklake, report):
    assert "claim_timeout = 300              # seconds" in ticklake("config", "show").stdout
    assert report("config", "show")["resources"]["batch-topic"]["options"]["claim_timeout"] == 300
