"""A real browser: Debian's Chromium, without a window."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from indexical.pages import WebPage

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine: `apt-get install chromium`")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


Open = Callable[..., Any]


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page, and fails where its script failed, or it asked for anything from outside."""
    problems: list[str] = []
    pages: list[Any] = []

    def open_page(page: WebPage, hash: str = "", **options: Any) -> Any:
        file = page.save(tmp_path / f"page{len(pages)}.html")
        tab = browser.new_page(viewport={"width": 1500, "height": 1000}, **options)
        tab.set_default_timeout(30_000)
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        tab.on("request", lambda request: problems.append(request.url) if not _is_inside(request.url) else None)
        tab.goto(f"{file.as_uri()}{hash}")
        pages.append(tab)
        return tab

    yield open_page
    for tab in pages:
        tab.close()
    assert problems == []


def _is_inside(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:"))
