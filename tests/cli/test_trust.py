from __future__ import annotations

import os
from pathlib import Path

import pytest

from outpost_lsp.cli.arguments import parse
from outpost_lsp.cli.settings import trust
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
