"""Who may import whom: a floor imports lower floors only, and the outside world has one owner each."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "outpost_lsp"

FLOORS = {
    "errors": 0,
    "domain": 0,
    "models": 1,
    "decisions": 1,
    "worktrees": 1,
    "sandbox": 1,
    "storage": 1,
    "remote": 1,
    "telemetry": 1,
    "tools": 2,
    "harness": 3,
    "workspaces": 4,
    "dispatches": 4,
    "reviews": 4,
    "config": 5,
    "service": 5,
    "protocol": 6,
    "lsp": 7,
    "cli": 7,
    "cluster": 7,
}
"""The faces stand above the wire records they share."""

NEIGHBOURS = {("domain", "errors"), ("dispatches", "workspaces"), ("reviews", "dispatches"), ("service", "config")}

OWNERS = {
    "httpx": ("models", "decisions", "remote"),
    "git": ("worktrees",),
    "pygls": ("lsp",),
    "lsprotocol": ("lsp",),
    "subprocess": ("sandbox", "worktrees"),
    "opentelemetry": ("telemetry",),
    "requests": ("telemetry",),
    "ray": ("cluster",),
    "mcp": ("tools",),
    "mcp_types": ("tools",),
    "httpx2": ("tools",),
    "acp": ("dispatches",),
}


def modules() -> list[Path]:
    return sorted(
        path
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] in FLOORS or len(path.relative_to(PACKAGE).parts) > 1
    )


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            yield node.module or ""


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_floor_imports_only_lower_floors(path: Path) -> None:
    room = room_of(path)
    assert room in FLOORS, f"{room} stands on no floor"
    for name in imported(path):
        parts = name.split(".")
        if parts[0] != "outpost_lsp" or len(parts) == 1:
            continue
        other = parts[1]
        if other == room or other.startswith("__"):
            continue
        allowed = FLOORS[other] < FLOORS[room] or (room, other) in NEIGHBOURS
        assert allowed, f"{path.relative_to(PACKAGE)} imports {name}, which is not below it"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_outside_world_has_one_owner(path: Path) -> None:
    for name in imported(path):
        owners = OWNERS.get(name.split(".")[0])
        assert owners is None or room_of(path) in owners, f"{path.relative_to(PACKAGE)} imports {name}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    nothing = {"utils", "util", "common", "misc", "base", "manager", "helpers"}
    assert not [path for path in modules() if path.stem in nothing]
