"""Where a service may be and what a key may look like (SEC-16, SEC-17, HTTP-07)."""

from __future__ import annotations

from typing import Any

import pytest

from outpost_lsp.errors import OutpostError
from outpost_lsp.models.anthropic import AnthropicModelProvider
from outpost_lsp.models.endpoint import checked_base_url
from outpost_lsp.models.openai import OpenAIModelProvider


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("https://api.example.com/v1", "https://api.example.com/v1"),
        ("https://api.example.com/v1///", "https://api.example.com/v1"),
        ("https://API.Example.com:8443/V1/", "https://api.example.com:8443/V1"),
        ("HTTPS://api.example.com", "https://api.example.com"),
        ("http://localhost:11434/v1", "http://localhost:11434/v1"),
        ("http://127.0.0.1/v1", "http://127.0.0.1/v1"),
        ("http://127.8.9.1:80", "http://127.8.9.1:80"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
        ("http://[::ffff:127.0.0.1]/v1", "http://[::ffff:127.0.0.1]/v1"),
        ("https://[2001:db8::1]/v1", "https://[2001:db8::1]/v1"),
        (
            "https://gateway.example.com/deployments/my%20model/v1",
            "https://gateway.example.com/deployments/my%20model/v1",
        ),
    ],
)
def test_SEC_17_addresses_that_are_taken(given: str, kept: str) -> None:
    assert checked_base_url(given) == kept


@pytest.mark.parametrize(
    "given",
    [
        "",
        "api.example.com",
        "/v1",
        "ftp://api.example.com",
        "file:///etc/passwd",
        "https://",
        "https:///v1",
        "http://api.example.com/v1",
        "http://127.0.0.1.example.invalid/v1",
        "http://localhost.example.com/v1",
        "http://localhost./v1",
        "http://2130706433/v1",
        "http://0x7f.1/v1",
        "http://0.0.0.0/v1",
        "http://10.0.0.1/v1",
        "http://[::]/v1",
        "http://[::ffff:10.0.0.1]/v1",
        "http://[127.0.0.1]/v1",
        "http://127.0.0.1@evil.example/v1",
        "https://user:pass@api.example.com/v1",
        "https://user@api.example.com/v1",
        "http://127.0.0.1\\@evil.example/v1",
        "http://evil.example\\@127.0.0.1/v1",
        "http://127.0.0.1#@evil.example/v1",
        "https://api.example.com/v1?key=1",
        "https://api.example.com/v1?",
        "https://api.example.com/v1#x",
        "https://api.example.com:port/v1",
        "https://api.example.com:99999/v1",
        "https://api.example.com:0/v1",
        "https://api.exa mple.com/v1",
        "https://api.example.com/v1\n",
        " https://api.example.com/v1",
        "https://apì.example.com/v1",
        "https://[::1/v1",
        "https://[zz]/v1",
        "https://-x.example.com/v1",
        5,
        None,
    ],
)
def test_SEC_17_addresses_that_are_refused(given: Any) -> None:
    with pytest.raises(OutpostError) as caught:
        OpenAIModelProvider(given, "key")
    assert caught.value.code == "configuration"
    assert caught.value.message.startswith("base_url: ")
    assert "pass@" not in caught.value.message


def test_SEC_17_a_refused_plain_address_says_what_to_use() -> None:
    with pytest.raises(OutpostError, match=r"https for api\.example\.com"):
        OpenAIModelProvider("http://api.example.com/v1", "key")


@pytest.mark.parametrize("key", ["", "  ", "two\nlines", "tab\tkey", "schlüssel", "nul\x00", 5, True, b"bytes"])
def test_a_key_that_cannot_be_one_is_refused_and_not_shown(key: Any) -> None:
    with pytest.raises(OutpostError) as caught:
        OpenAIModelProvider("https://api.example.com/v1", key)
    assert caught.value.code == "configuration"
    assert caught.value.message.startswith("api_key: ")
    assert str(key).strip() == "" or str(key) not in caught.value.message


@pytest.mark.parametrize("key", [None, False])
def test_anthropics_service_needs_a_key(key: Any) -> None:
    with pytest.raises(OutpostError, match="api_key"):
        AnthropicModelProvider(api_key=key)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("timeout_s", 0),
        ("timeout_s", -1),
        ("timeout_s", float("nan")),
        ("timeout_s", float("inf")),
        ("timeout_s", 2**31),
        ("timeout_s", "120"),
        ("timeout_s", True),
        ("connect_timeout_s", 0),
        ("max_retries", -1),
        ("max_retries", 1.5),
        ("max_retries", True),
        ("max_response_bytes", 0),
        ("max_response_bytes", "8"),
        ("name", " "),
        ("api", "completions"),
    ],
)
def test_options_out_of_range_are_named(option: str, value: Any) -> None:
    with pytest.raises(OutpostError) as caught:
        OpenAIModelProvider("https://api.example.com/v1", "key", **{option: value})
    assert caught.value.code == "configuration"
    assert caught.value.message.startswith(f"{option}: ")


def test_the_public_address_of_anthropics_service_is_the_default() -> None:
    assert AnthropicModelProvider(api_key="key").identity == "anthropic:/messages:https://api.anthropic.com/v1"
