"""All faults of a file at once: what cannot be read, what is missing, and what does not fit together beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outpost_lsp.config.files import read_settings_file
from outpost_lsp.config.schema import BUILT_IN, Settings
from outpost_lsp.config.sources import check_file, load_settings
from outpost_lsp.config.whole import judged


def told(text: str, tmp_path: Path) -> list[str]:
    file = tmp_path / "outpost.toml"
    file.write_text(text)
    return [str(fault).removeprefix(f"{file}:") for fault in check_file(read_settings_file(file))]


def test_a_wrong_kind_an_unknown_key_a_name_of_nothing_and_a_missing_one_are_all_told_by_line(tmp_path: Path) -> None:
    text = """\
default_model = "nope"
[runs]
concurrency = "x"
colour = 3
[routing.r]
decider = "d"
[agents.a]
model = "nix"
limits = { max_steps = -1 }
[models.m]
provider = "none"
name = "m"
"""
    faults = told(text, tmp_path)
    places = sorted(tuple(fault.split(": ")[:2]) for fault in faults)
    assert places == [
        ("1", "default_model"),
        ("11", "models.m.provider"),
        ("3", "runs.concurrency"),
        ("4", "runs.colour"),
        ("6", "routing.r.criteria"),
        ("6", "routing.r.fallback"),
        ("6", "routing.r.models"),
        ("8", "agents.a.model"),
        ("9", "agents.a.limits.max_steps"),
    ]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        # A model that cannot be read is there all the same for those that name it.
        (
            '[models.m]\nprovider = 3\nname = "m"\n[agents.a]\nmodel = "m"\n[review]\nagent = "b"',
            ["models.m.provider", "review.agent"],
        ),
        # What would be needed instead of a value of a wrong kind is not asked for.
        ("[mcp.x]\ncommand = 3", ["mcp.x.command"]),
        ('[runs]\nexecutor = "ray"\n[runs.ray]\nurl = 3', ["runs.ray.url"]),
        # An agent whose sort is unknown may name models that nobody else knows.
        ('[agents.a]\ncommand = 3\nmodel = "of its own"', ["agents.a.command"]),
        # Neither is the price known of a model that cannot be read.
        (
            '[models.offline]\nprovider = "offline"\nname = "o"\nprice = 3\n[budget.per_run]\ncost = 1',
            ["models.offline.price"],
        ),
        ('models = 4\n[agents.a]\nmodel = "m"', ["models"]),
        ('agents = 4\n[review]\nagent = "b"', ["agents"]),
    ],
)
def test_what_only_another_fault_causes_is_not_told(text: str, keys: list[str], tmp_path: Path) -> None:
    assert [fault.split(": ")[1] for fault in told(text, tmp_path)] == keys


def test_the_other_places_are_not_blamed_for_what_a_file_at_fault_would_take_from_them(tmp_path: Path) -> None:
    user, folder = tmp_path / "config.toml", tmp_path / "folder"
    folder.mkdir()
    good = '[agents.mine]\ntools = ["files"]\n'
    user.write_text(good)
    (folder / "outpost.toml").write_text('[review]\nagent = "mine"\n')
    before = load_settings(user_file=user, folder=folder)
    assert before.faults == ()
    user.write_text('[agents.other]\ntools = ["files"]\nmodel = "nix"\n[runs]\nconcurrency = "x"\n')
    after = load_settings(user_file=user, folder=folder, previous=before)
    assert {(fault.origin.source, fault.key) for fault in after.faults} == {
        (str(user), "runs.concurrency"),
        (str(user), "agents.other.model"),
    }
    assert after.settings.review.agent == "mine"


_KEYS = st.sampled_from([*Settings.model_fields, "m", "offline", "reviewer", "command", "model", "provider", "name"])
_VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from(["", "offline", "reviewer", "m", "\0"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(_KEYS, inner, max_size=3)),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(list(Settings.model_fields)), _VALUES, max_size=4))
def test_whatever_is_written_is_judged_and_never_raises(tree: dict[str, Any]) -> None:
    understood, faults = judged({**BUILT_IN, **tree})
    assert understood is not None or faults
    assert len(set(faults)) == len(faults)
