"""What mkdocs does besides: links that leave docs/, pages from elsewhere, and a search that works from a disk."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[1]
FROM_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md")
_LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_config(config: Any) -> Any:
    """Anchors are named as code hosts name them, so that a link works in both places."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that lie beside docs/."""
    for name in FROM_ROOT:
        files.append(File.generated(config, name, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: Any, files: Files) -> str:
    place = page.file.src_uri if page.file.src_uri in FROM_ROOT else f"docs/{page.file.src_uri}"
    return rewritten(markdown, place, config.repo_url)


def on_post_build(config: Any) -> None:
    """A page that was opened from a disk cannot fetch the index of the search; it can load it as a script."""
    search = Path(config.site_dir) / "search"
    index = (search / "search_index.json").read_text(encoding="utf-8")
    (search / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")


def rewritten(markdown: str, place: str, repository: str | None) -> str:
    """The text of the page at `place` (its path in the repository), with the links that it has on the site.

    A link to a page of docs/ leads there. Any other file of the repository is on no page: the link leads to the
    repository's address or, if it has none, is only the name of the file. A broken link stays as it is.
    """

    def link(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        if path in FROM_ROOT or path.startswith("docs/"):
            here = posixpath.dirname(place.removeprefix("docs/"))
            return f"[{text}]({posixpath.relpath(path.removeprefix('docs/'), here or '.')}{anchor})"
        if not (ROOT / path).exists():
            return match[0]  # mkdocs finds it missing
        if repository:
            return f"[{text}]({repository.rstrip('/')}/blob/HEAD/{path}{anchor})"
        return text if "`" in text or not _is_name(text) else f"`{text}`"

    return _outside_of_code(markdown, lambda part: _LINK.sub(link, part))


def _is_name(text: str) -> bool:
    return re.fullmatch(r"[\w./-]+\.\w+", text) is not None


def _outside_of_code(markdown: str, change: Any) -> str:
    parts = re.split(r"(^```.*?^```[^\n]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else change(part) for part in parts)
