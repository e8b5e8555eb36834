"""PERM-01 to -06, -09, -10: what rules say of a call."""

from __future__ import annotations

import pytest

from outpost_lsp.domain.permission import PermissionRule, Permissions, Resources, normalised_path
from outpost_lsp.errors import OutpostError


def effect(rules: list[PermissionRule], tool: str = "read_file", *, default="allow", **resources) -> str:
    paths = tuple(resources.get("paths", ()))
    return Permissions(rules, default).verdict(tool, Resources(paths, resources.get("command"))).effect


def test_PERM_01_the_first_rule_that_matches_decides():
    rules = [PermissionRule("allow", paths=["src/a.py"]), PermissionRule("deny", paths=["src/**"])]
    assert effect(rules, paths=["src/a.py"]) == "allow"
    assert effect(rules, paths=["src/b.py"]) == "deny"
    assert effect(rules, paths=["lib/b.py"]) == "allow"
    assert effect(rules, paths=["lib/b.py"], default="deny") == "deny"
    assert effect(rules, paths=["lib/b.py"], default="ask") == "ask"


def test_PERM_02_all_conditions_must_hold_and_none_match_every_call():
    rule = PermissionRule("deny", tools=["write_*"], paths=["**/.env"])
    assert effect([rule], "write_file", paths=["a/.env"]) == "deny"
    assert effect([rule], "read_file", paths=["a/.env"]) == "allow"
    assert effect([rule], "write_file", paths=["a/env"]) == "allow"
    assert effect([PermissionRule("deny")], "anything") == "deny"


def test_PERM_03_a_call_without_a_command_never_matches_a_rule_with_commands():
    rule = PermissionRule("deny", commands=["*"])
    assert effect([rule], "shell", command="ls\n-l") == "deny"
    assert effect([rule], "shell", command="") == "deny"
    assert effect([rule], "read_file", paths=["a"]) == "allow"


def test_PERM_04_an_allowing_rule_needs_all_paths_and_a_denying_one_needs_one():
    both = ["src/a", "secret/b"]
    assert effect([PermissionRule("allow", paths=["src/**"])], default="deny", paths=both) == "deny"
    assert effect([PermissionRule("allow", paths=["src/**", "secret/**"])], default="deny", paths=both) == "allow"
    assert effect([PermissionRule("deny", paths=["secret/**"])], paths=both) == "deny"
    assert effect([PermissionRule("deny", paths=["**"])]) == "allow"


def test_PERM_04_paths_are_compared_in_their_normalised_form():
    rule = PermissionRule("deny", paths=["secret/**"])
    for path in ("secret/x", "./secret/x", "secret//x", "secret\\x", "a/../secret/x", "secret/./x"):
        assert effect([rule], paths=[path]) == "deny", path


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x", "C:\\x", ".."])
def test_PERM_05_a_path_that_escapes_matches_no_pattern(path):
    assert effect([PermissionRule("deny", paths=["**"])], paths=[path]) == "allow"
    assert effect([PermissionRule("allow", paths=["**"])], default="deny", paths=[path]) == "deny"
    assert effect([PermissionRule("allow", paths=["**"])], default="deny", paths=["a", path]) == "deny"
    assert normalised_path(path) is None


def test_an_unlimited_search_is_not_covered_by_a_rule_for_a_folder():
    assert effect([PermissionRule("allow", paths=["src/**"])], default="deny", paths=["."]) == "deny"
    assert effect([PermissionRule("allow", paths=["**"])], default="deny", paths=["."]) == "allow"


def test_PERM_06_the_reason_is_the_rules_or_its_number_or_the_default():
    rules = [PermissionRule("deny", tools=["a"], reason="Not here."), PermissionRule("deny", tools=["b"])]
    permissions = Permissions(rules, "deny")
    assert permissions.verdict("a", Resources()).reason == "Not here."
    assert permissions.verdict("b", Resources()).reason == "permission rule 2"
    assert permissions.verdict("c", Resources()).reason == "no permission rule allows this call"


def test_PERM_10_asking_matches_like_allowing():
    rule = PermissionRule("ask", paths=["src/**"])
    assert effect([rule], paths=["src/a"]) == "ask"
    assert effect([rule], paths=["src/a", "lib/b"]) == "allow"


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: PermissionRule("maybe"), "effect"),
        (lambda: PermissionRule("deny", tools=[]), "tools"),
        (lambda: PermissionRule("deny", paths=[""]), "paths.0"),
        (lambda: PermissionRule("deny", commands=["ls", " "]), "commands.1"),
        (lambda: PermissionRule("deny", tools="write_file"), "tools"),
        (lambda: PermissionRule("deny", reason=" "), "reason"),
        (lambda: PermissionRule("deny", path=["x"]), "path: there is no such option"),
        (lambda: Permissions([], "maybe"), "default"),
        (lambda: Permissions([], "deny", rule=[]), "rule: there is no such option"),
        (lambda: Permissions(["deny"]), "rules.0"),
    ],
)
def test_PERM_09_wrong_rules_are_refused_by_field(build, field):
    with pytest.raises(OutpostError) as caught:
        build()
    assert caught.value.code == "configuration"
    assert field in caught.value.message


def test_rules_are_kept_as_they_were_declared():
    globs = ["a"]
    rules = [PermissionRule("deny", tools=globs)]
    permissions = Permissions(rules)
    globs.append("b")
    rules.clear()
    assert permissions.verdict("b", Resources()).effect == "allow"
    assert permissions.verdict("a", Resources()).effect == "deny"
