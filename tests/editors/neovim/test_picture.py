"""A person at a real Neovim on a terminal: what is typed, and what is seen, with pictures of it.

The pictures go to the folder that OUTPOST_PICTURES names; those in the documents were made so, with Chromium.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.editors.neovim.screen import on_terminal, photograph
from tests.editors.neovim.test_neovim import PLUGIN, neovim
from tests.support.repositories import make_repository

HERE = Path(__file__).parent
BEFORE = """import math

PRICES = {"apple": 3, "pear": 4}


def total(basket):
    return sum(PRICES[name] * count for name, count in basket.items())


def boxes(count, size):
    return math.ceil(count / size)
"""
AFTER = """PRICES = {"apple": 3, "pear": 4}


def total(basket, discounts=[]):
    if basket is "empty":
        return 0
    return sum(PRICES[name] * count for name, count in basket.items())


def boxes(count, size):
    return math.ceil(count / size)
"""


def test_a_person_types_a_review_and_a_task_and_sees_findings_runs_and_routes(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "shop", {"shop/basket.py": BEFORE})
    repository.write("shop/basket.py", AFTER)
    config = tmp_path / "config.toml"
    config.write_text(
        '[agents.coordinator]\ntools = ["files", "search", "git"]\nsubagents = ["reviewer"]\nrouting = "rules"\n'
        '[agents.reviewer]\ntools = ["files", "search", "git", "findings"]\nrouting = "rules"\n'
    )
    pictures = Path(os.environ.get("OUTPOST_PICTURES", tmp_path))
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "LANG": "C.UTF-8",
        "OUTPOST_PLUGIN": str(PLUGIN),
        "OUTPOST_PYTHON": sys.executable,
        "OUTPOST_CONFIG": str(config),
        "OUTPOST_STATE_DIR": str(tmp_path / "state"),
        "OUTPOST_CACHE_DIR": str(tmp_path / "cache"),
    }
    command = [neovim(), "-u", str(HERE / "look.lua"), "shop/basket.py"]
    with on_terminal(command, environment, cwd=repository.path) as screen:
        screen.wait("the file", lambda text: "def boxes" in text)
        screen.type(":Outpost review\r")
        screen.wait("the findings", lambda text: "3 findings" in text and text.count("■") >= 3)
        screen.type(":Outpost findings\r")
        screen.wait("the quickfix list", lambda text: "[Quickfix List] Outpost findings" in text)
        screen.picture(pictures / "neovim-findings.svg", "Neovim")
        screen.type(":cclose\r:Outpost coordinate Review the uncommitted changes.\r:Outpost runs\r")
        screen.wait(
            "the delegation",
            lambda text: "reviewer finished" in text and "succeeded  coordinator: " in text and "1 running" not in text,
        )
        screen.picture(pictures / "neovim-runs.svg", "Neovim")
        assert "coordinator step 1: " in screen.text
        # Rules use no tokens, and a review changes nothing: neither is told.
        assert "tokens" not in screen.text
        assert "changes none" not in screen.text
        screen.type("q:qall!\r")
        screen.process.wait(timeout=60)
    for name in ("neovim-findings.svg", "neovim-runs.svg"):
        assert "<svg" in (pictures / name).read_text("utf-8")
        if "OUTPOST_PICTURES" in os.environ:
            photograph(pictures / name)
