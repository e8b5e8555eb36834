"""The public names of the library, and what importing them costs."""

from __future__ import annotations

import subprocess
import sys

import pytest


def _printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_importing_the_library_loads_neither_the_server_nor_a_client_of_services() -> None:
    program = (
        "import sys, outpost_lsp; print(sorted({'pygls', 'lsprotocol', 'httpx'}.intersection(sys.modules)))"
        "; [getattr(outpost_lsp, name) for name in outpost_lsp.__all__]"
        "; print(sorted({'pygls', 'lsprotocol'}.intersection(sys.modules)))"
    )
    assert _printed(program).split("\n") == ["[]", "[]"]


@pytest.mark.parametrize(
    "first",
    [
        "import outpost_lsp.reviews.scope",
        "from outpost_lsp import OfflineModelProvider",
        "[getattr(outpost_lsp, name) for name in sorted(outpost_lsp.__all__)]",
        "pass",
    ],
)
def test_no_public_name_is_hidden_by_a_package_of_that_name(first: str) -> None:
    program = (
        f"import outpost_lsp, types; {first}\n"
        "print([name for name in outpost_lsp.__all__ if isinstance(getattr(outpost_lsp, name), types.ModuleType)])"
    )
    assert _printed(program) == "[]"
