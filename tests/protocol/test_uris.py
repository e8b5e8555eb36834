"""File URIs: many spellings in, the client's own spelling out (U-40)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outpost_lsp.protocol.uris import UriSpellings, path_of, uri_of


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///home/a/b.py", "/home/a/b.py"),
        ("file:///c%3A/x.py", "/c:/x.py"),
        ("file:///c:/x.py", "/c:/x.py"),
        ("file:///a%20b/%23%25/%C3%A9.py", "/a b/#%/é.py"),
        ("file:///a b/é.py", "/a b/é.py"),
        ("FILE:///a", "/a"),
        ("file://localhost/a", "/a"),
        ("file:///a/./b/../c", "/a/c"),
        ("file:///a/", "/a"),
    ],
)
def test_every_spelling_of_a_file_uri_names_its_path(uri: str, path: str) -> None:
    assert path_of(uri) == Path(path)


@pytest.mark.parametrize(
    "uri", ["untitled:Untitled-1", "http://a/b", "file://server/share/a", "file:a", "", "file:///a%00b", "file://[/a"]
)
def test_what_is_no_file_of_this_machine_has_no_path(uri: str) -> None:
    assert path_of(uri) is None


@pytest.mark.parametrize("name", ["a b", "a#b", "a%20b", "é中😀", "a?b", "a:b", "a+b&c", "[x]"])
def test_a_path_comes_back_from_its_uri(name: str) -> None:
    path = Path("/folder") / name
    assert path_of(uri_of(path)) == path


def test_bytes_that_are_not_utf_8_survive() -> None:
    path = Path(os.fsdecode(b"/folder/\xff.py"))
    assert uri_of(path) == "file:///folder/%FF.py"
    assert path_of("file:///folder/%FF.py") == path


def test_a_document_is_spelled_as_the_client_spelled_it() -> None:
    spellings = UriSpellings()
    spellings.learn("file:///c%3A/x%20y.py")
    assert spellings.spell(Path("/c:/x y.py")) == "file:///c%3A/x%20y.py"
    spellings.learn("file:///c:/x%20y.py")
    assert spellings.spell(Path("/c:/x y.py")) == "file:///c:/x%20y.py"


def test_an_unopened_file_is_spelled_like_its_folder() -> None:
    spellings = UriSpellings()
    spellings.learn_folder("file:///c%3A/code/")
    assert spellings.spell(Path("/c:/code/a b.py")) == "file:///c%3A/code/a%20b.py"
    assert spellings.spell(Path("/c:/code")) == "file:///c%3A/code"
    spellings.forget_folder(Path("/c:/code"))
    assert spellings.spell(Path("/c:/code/a.py")) == "file:///c:/code/a.py"
