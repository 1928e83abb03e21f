"""Pages as PDF files: the browser that prints them, and how it may fail."""

from __future__ import annotations

import re
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

from flawsort import OptionError
from flawsort.outputs import printing
from flawsort.outputs.printing import find_browser, print_page


def browser(path: Path, script: str) -> Path:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_printed_without_its_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = browser(
        tmp_path / "fake",
        'for page; do case "$page" in --print-to-pdf=*) to="${page#*=}";; esac; done\n'
        'cp "${page#file://}" "$to"',
    )
    printed = b"<p>/CreationDate (D:20000101000000Z      )"
    page = "<p>/CreationDate (D:20240102030405+00'00')"
    assert print_page(page, str(fake)) == printed
    monkeypatch.setenv("FLAWSORT_CHROMIUM", str(fake))
    assert print_page(page) == printed


def test_a_browser_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = browser(tmp_path / "fake", "echo no display >&2; exit 1")
    monkeypatch.setenv("FLAWSORT_CHROMIUM", str(fake))
    with pytest.raises(OptionError, match=r"print the page\. Its last message: no displa"):
        print_page("<p>")


def test_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLAWSORT_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        OptionError, match=r"Looked for chromium, .*chrome and found none\. Install"
    ):
        find_browser()
    monkeypatch.setenv("FLAWSORT_CHROMIUM", "/no/such/browser")
    with pytest.raises(OptionError, match="'/no/such/browser', which FLAWSORT_CHROMIUM names,"):
        find_browser()
    with pytest.raises(OptionError, match=re.escape("Looked for 'mine' and found none.")):
        find_browser("mine")


def test_where_installers_put_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A browser that is on no path: in a folder of applications, as on macOS and Windows.
    there = tmp_path / "Google Chrome.app" / "Google Chrome"
    there.parent.mkdir()
    browser(there, "")
    monkeypatch.delenv("FLAWSORT_CHROMIUM", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("APPLICATIONS", str(tmp_path))
    monkeypatch.setattr(printing, "sys", SimpleNamespace(platform="this"))
    places = ("/no/such", "${APPLICATIONS}/Google Chrome.app/Google Chrome")
    monkeypatch.setitem(printing.INSTALLED, "this", places)
    assert find_browser() == str(there)
