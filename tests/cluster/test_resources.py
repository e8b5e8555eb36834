"""What a node of a cluster is told when it starts."""

from __future__ import annotations

from importlib.util import find_spec

from outpost_lsp.cluster.resources import WARM


def test_what_a_process_imports_before_its_run_comes_is_there() -> None:
    names = WARM["RAY_preload_python_modules"].split(",")
    # Ray itself is an extra.
    missing = [name for name in names if not name.startswith("ray.") and find_spec(name) is None]
    assert missing == []
    assert "outpost_lsp.cluster.job" in names
