"""The glossary gives each word one meaning, and has the words that every page uses."""

from __future__ import annotations

import re
from pathlib import Path

GLOSSARY = (Path(__file__).parents[3] / "docs" / "glossary.md").read_text(encoding="utf-8")
WORDS = {
    *(
        "original",
        "run",
        "tick",
        "batch file",
        "slice",
        "flush",
        "commit",
        "ledger",
        "topic",
        "group",
        "claim",
        "lease",
    ),
    *("fence", "ack", "release", "dead letter", "outbox", "gap", "hole", "completeness", "frontier", "retention"),
    *("upkeep", "node"),
}


def test_the_glossary_has_every_word_once():
    words = re.findall(r"^\| ([a-z ]+) \| [A-Z\"]", GLOSSARY, re.MULTILINE)
    assert sorted({word for word in words if words.count(word) > 1}) == []
    assert sorted(WORDS - set(words)) == []
