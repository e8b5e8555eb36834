from __future__ import annotations

import os
from pathlib import Path

import pytest

from outpost_lsp.cli.arguments import parse
from outpost_lsp.cli.settings import config, trust
from outpost_lsp.cli.status import DONE


@pytest.mark.parametrize(
    ("words", "inside"),
    [(["DIR"], "."), (["-C", "DIR"], "."), (["-C", "DIR", "inner"], "inner"), (["-C", "/", "DIR"], ".")],
)
def test_a_folder_is_trusted_by_its_name_or_as_if_started_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], inside: str
) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    given = [str(folder) if word == "DIR" else word for word in words]
    for more, told in (
        ([], "is trusted"),
        (["--remove"], "is not trusted any more"),
        (["--remove"], "was not trusted"),
    ):
        assert trust(parse(["trust", *given, *more])) == DONE
        assert capsys.readouterr().out.startswith(f"{os.path.normpath(folder / inside)} {told}")


def test_what_is_in_force_by_trust_is_told_and_what_is_wrong_is_not_called_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "outpost.toml"
    for text, told, wrong in (
        ('[sandbox]\nsetup = ["make"]\nreadable = ["/opt"]\n', [f"sandbox.setup ({file}:2)"], "sandbox.readable"),
        ('default_model = "nothing"\n', [], "default_model"),
        ("x = [\n", [], "it is no TOML"),
    ):
        file.write_text(text)
        assert trust(parse(["trust", str(folder)])) == DONE
        shown = capsys.readouterr()
        assert [line.strip() for line in shown.out.splitlines()[1:]] == [f"now in force: {one}" for one in told]
        assert wrong in shown.err


def test_what_trust_would_let_through_is_told_with_how_to_give_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "outpost.toml"
    file.write_text('[sandbox]\nsetup = ["make"]\n')
    check = parse(["config", "check", "-C", str(tmp_path)])
    assert config(check) == DONE
    assert "nobody has trusted it; do so with `outpost-lsp trust`" in capsys.readouterr().err
    assert trust(parse(["trust", str(tmp_path)])) == DONE
    capsys.readouterr()
    assert config(check) == DONE
    assert capsys.readouterr().err == ""
    file.write_text('[sandbox]\nsetup = ["make all"]\n')
    assert config(check) == DONE
    assert "its settings have changed since it was trusted; trust it again" in capsys.readouterr().err
