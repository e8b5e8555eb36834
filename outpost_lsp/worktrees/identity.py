"""Who commits made in a sandbox are by: the user, as their git configuration says (GIT-03)."""

from __future__ import annotations

from collections.abc import Mapping

from outpost_lsp.worktrees.git import Repository


def commit_identity(repository: Repository) -> Mapping[str, str]:
    """The four variables of author and committer for commands of a sandbox; later variables may override them.

    The name and address come from the merged configuration, which was read when the repository was found.
    """
    values = {setting.key: setting.value for setting in repository.overrides.settings}
    name = values.get("user.name") or "Outpost"
    address = values.get("user.email") or "outpost@localhost"
    return {
        f"GIT_{role}_{part}": value
        for role, own in (("AUTHOR", "author"), ("COMMITTER", "committer"))
        for part, value in (
            ("NAME", values.get(f"{own}.name") or name),
            ("EMAIL", values.get(f"{own}.email") or address),
        )
    }
