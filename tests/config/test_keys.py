"""Where keys come from, what a missing one says, and that none is ever shown (SEC-16, SEC-17, U-36)."""

from __future__ import annotations

import base64
import logging
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outpost_lsp.config.keys import decider_key, key_values, key_variable, key_variables, provider_key
from outpost_lsp.config.masking import KeyFilter, mask_patterns, masked
from outpost_lsp.config.services import ProviderSettings
from outpost_lsp.config.sources import load_settings
from outpost_lsp.errors import OutpostError

CANARY = "canary/sk+123 é=="


async def looked_up(source: object) -> str:
    assert callable(source)
    key = source()
    return await key if isinstance(key, Awaitable) else key


def openai(**fields: object) -> ProviderSettings:
    return ProviderSettings.model_validate({"kind": "openai", **fields})


@pytest.mark.parametrize(
    ("fields", "variable"),
    [
        ({"kind": "openai"}, "OPENAI_API_KEY"),
        ({"kind": "openai", "base_url": "https://api.openai.com/v1/"}, "OPENAI_API_KEY"),
        ({"kind": "openai", "base_url": "http://127.0.0.1:8080/v1"}, ""),
        ({"kind": "openai", "base_url": "https://api.openai.com.evil.example/v1"}, ""),
        ({"kind": "openai", "base_url": "https://a.example/v1", "api_key_env": "A_KEY"}, "A_KEY"),
        ({"kind": "openai", "api_key_env": ""}, ""),
        ({"kind": "anthropic"}, "ANTHROPIC_API_KEY"),
        ({"kind": "offline"}, ""),
    ],
)
def test_SEC_17_the_customary_variable_goes_to_the_public_service_only(fields: dict[str, str], variable: str) -> None:
    assert key_variable(ProviderSettings.model_validate(fields)) == variable


async def test_a_key_is_looked_up_at_each_request() -> None:
    environment = {"A_KEY": "first"}
    key = provider_key("p", openai(api_key_env="A_KEY"), environment)
    assert await looked_up(key) == "first"
    environment["A_KEY"] = " second\n"
    assert await looked_up(key) == "second"


async def test_a_missing_key_names_the_variable_and_what_to_do() -> None:
    for environment in ({}, {"A_KEY": ""}, {"A_KEY": "  "}):
        with pytest.raises(OutpostError) as caught:
            await looked_up(provider_key("p", openai(api_key_env="A_KEY"), environment))
        assert caught.value.code == "configuration"
        assert "A_KEY is not set; set it where the server is started" in caught.value.message
        assert "providers.p.api_key_env" in caught.value.message
        assert caught.value.details == {"variable": "A_KEY", "provider": "p"}
    key = decider_key("laya", "L_KEY", {})
    assert key is not None
    with pytest.raises(OutpostError, match="L_KEY is not set"):
        key()
    assert decider_key("laya", "", {}) is None
    key = decider_key("laya", "L_KEY", {"L_KEY": "k"})
    assert key is not None
    assert key() == "k"


def test_a_service_without_authentication_has_no_key() -> None:
    assert provider_key("p", openai(api_key_env=""), {"OPENAI_API_KEY": "x"}) is None


async def test_the_editors_storage_is_asked_when_the_variable_is_not_set() -> None:
    asked = []

    async def ask(provider: str) -> str | None:
        asked.append(provider)
        return {"p": "stored"}.get(provider)

    assert await looked_up(provider_key("p", openai(), {}, ask_client=ask)) == "stored"
    assert await looked_up(provider_key("p", openai(), {"OPENAI_API_KEY": "set"}, ask_client=ask)) == "set"
    with pytest.raises(OutpostError, match="secret storage"):
        await looked_up(provider_key("q", openai(), {}, ask_client=ask))
    assert asked == ["p", "q"]


def command(tmp_path: Path, code: str) -> Callable[..., object]:
    script = tmp_path / "key.py"
    script.write_text(code)
    return lambda environment, hidden=set: provider_key(
        "p", openai(api_key_command=[sys.executable, str(script)]), environment, hidden=hidden
    )


async def test_a_command_prints_the_key_and_sees_no_other_key(tmp_path: Path) -> None:
    made = command(
        tmp_path,
        "import os, pathlib\n"
        "calls = pathlib.Path(__file__).with_suffix('.calls')\n"
        "calls.write_text((calls.read_text() if calls.exists() else '') + 'x')\n"
        "print('printed-' + os.environ.get('OTHER_KEY', 'none') + '-' + os.environ['SEEN'])\nprint('more')\n",
    )
    key = made({"OTHER_KEY": "leak", "SEEN": "yes"}, lambda: {"OTHER_KEY"})
    assert await looked_up(key) == "printed-none-yes"
    assert await looked_up(key) == "printed-none-yes"
    assert (tmp_path / "key.calls").read_text() == "x"
    assert "printed" not in repr(key)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; print('canary'); print('canary', file=sys.stderr); sys.exit(3)", "ended with status 3"),
        ("", "printed nothing"),
        ("print(); print('canary')", "printed nothing"),
    ],
)
async def test_a_command_that_gives_no_key_is_a_fault_that_quotes_nothing(
    tmp_path: Path, code: str, expected: str
) -> None:
    with pytest.raises(OutpostError, match=expected) as caught:
        await looked_up(command(tmp_path, code)({}))
    assert caught.value.code == "configuration"
    assert "canary" not in repr(caught.value) + str(dict(caught.value.details))


async def test_a_command_that_is_not_there_is_a_fault_that_names_it() -> None:
    key = provider_key("p", openai(api_key_command=["no-such-program-anywhere"]), {"PATH": "/usr/bin"})
    with pytest.raises(OutpostError, match="no-such-program-anywhere") as caught:
        await looked_up(key)
    assert caught.value.code == "configuration"


def test_every_variable_that_holds_a_key_is_known(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text(
        "[providers.a]\nkind = 'openai'\napi_key_env = 'A'\n[providers.b]\nkind = 'anthropic'\n"
        "[deciders.d]\nkind = 'system-one'\nbase_url = 'https://d'\napi_key_env = 'D'\n"
        "[mcp.m]\nurl = 'https://m'\nbearer_token_variable = 'M'\n"
    )
    configured = load_settings(user_file=file).settings
    expected = {"A", "D", "M", "OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OUTPOST_RAY_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS"}
    assert key_variables(configured) == expected
    headers = "authorization=Bearer 3, x-scope=4, odd"
    values = {"A": "1", "D": "", "Z": "9", "M": " 2 ", "OTEL_EXPORTER_OTLP_HEADERS": headers}
    assert list(key_values(configured, values)) == ["1", "2", "Bearer 3", "4"]


KEYS = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="[]"), min_size=8, max_size=40)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(KEYS, st.binary(max_size=7), st.binary(max_size=7))
def test_SEC_16_a_key_is_masked_however_it_is_written(value: str, before: bytes, after: bytes) -> None:
    patterns = mask_patterns([value])
    percent = quote(value, safe="")
    lower = re.sub("%..", lambda found: found[0].lower(), percent)
    for spelling in (value, percent, lower):
        assert masked(f"a {spelling} b", patterns) == "a [redacted] b"
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        shown = masked(encode(before + value.encode() + after).decode(), patterns)
        assert "[redacted]" in shown
        # Besides what stands around the key, only the characters that it shares with that may be left.
        left = len(shown.replace("[redacted]", "").rstrip("="))
        assert left <= (len(before) + len(after)) * 4 / 3 + 4


def test_short_values_are_not_masked_and_the_longest_spelling_goes_first() -> None:
    assert mask_patterns(["short", ""]) == ()
    assert masked("abcdefgh-long abcdefgh", mask_patterns(["abcdefgh", "abcdefgh-long"])) == "[redacted] [redacted]"


def test_SEC_16_no_log_line_shows_a_key(caplog: pytest.LogCaptureFixture) -> None:
    handler, logger = logging.StreamHandler(), logging.getLogger("masked")
    lines: list[str] = []
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    handler.addFilter(KeyFilter(lambda: mask_patterns([CANARY])))
    logger.addHandler(handler)
    try:
        logger.warning("the key %s and %d", CANARY, 3)
        try:
            raise ValueError(CANARY)
        except ValueError:
            logger.exception("failed with %r", {"key": base64.b64encode(CANARY.encode())})
    finally:
        logger.removeHandler(handler)
    assert lines[0] == "the key [redacted] and 3"
    assert CANARY not in "".join(lines)
    assert base64.b64encode(CANARY.encode()).decode().rstrip("=")[:-1] not in lines[1]
