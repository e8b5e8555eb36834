"""The settings in force: four places merged, each value with its origin, faults told and never fatal.

A place with a fault keeps its last good version, or is left out when it never had one; the others are in force all the
same. Used by the service for each workspace, and by `config show` and `config check`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, Final

from pydantic import ValidationError

from outpost_lsp.config.faults import ConfigurationFault, Origin, Place, expectation, key_text, path_of
from outpost_lsp.config.files import SettingsFile, read_user_file, read_workspace_file
from outpost_lsp.config.merge import MergedTree
from outpost_lsp.config.names import Named
from outpost_lsp.config.schema import BUILT_IN, Settings
from outpost_lsp.config.toml_lines import Path
from outpost_lsp.config.trust import TRUSTED_ONLY, Trust, allowed, settings_digest
from outpost_lsp.config.whole import judged

_BUILT_IN: Final = Origin("default", "built in")
_EDITOR_KEYS: Final = frozenset(("trace", "server"))
"""What editors keep in the same section for themselves: the trace level and how they start the server."""

UNTRUSTED: Final = Trust(False, "nobody has trusted it")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings that came as JSON: from an editor, or from the command line."""

    source: str
    tree: Any


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings in force, and everything that is to be said about them."""

    settings: Settings
    origins: MergedTree
    """The merged tree with the origin of each value."""
    trust: Trust
    digest: str
    """Stands for the workspace's own settings; trust is given to it."""
    faults: tuple[ConfigurationFault, ...] = ()
    """What is wrong; the places concerned keep their last good version."""
    refused: tuple[ConfigurationFault, ...] = ()
    """What a place tried to set and may not."""
    warnings: tuple[ConfigurationFault, ...] = ()
    """What was passed over: keys of services in settings."""
    files: tuple[FilePath, ...] = ()
    """The files that were looked at, there or not; settings change with them."""
    good: Mapping[str, _Layer] = field(default_factory=dict, repr=False)

    @property
    def is_trusted(self) -> bool:
        """Whether the workspace's folder is trusted."""
        return self.trust.is_trusted

    @property
    def remedy_of_refusals(self) -> str:
        """Why the folder is not trusted and how it becomes so, where that kept a setting out; else nothing."""
        kept_out = not self.is_trusted and any(TRUSTED_ONLY in refusal.message for refusal in self.refused)
        return f"the folder is not trusted: {self.trust.reason}" if kept_out else ""


@dataclass(frozen=True, slots=True)
class _Layer:
    """One place's tree with canonical names."""

    place: Place
    source: str
    tree: Mapping[str, Any]
    origin_of: Callable[[Path], Origin]


def load_settings(
    *,
    user_file: FilePath | SettingsFile | None = None,
    folder: FilePath | SettingsFile | None = None,
    client: Sequence[ClientSettings] = (),
    trust: Callable[[str], Trust] = lambda _digest: UNTRUSTED,
    previous: LoadedSettings | None = None,
) -> LoadedSettings:
    """Read and merge the four places. A `folder`'s settings may have come otherwise than by a file. `client` is in rising order; `trust` judges the hash of the workspace's settings.

    Never raises for what is written anywhere: see `faults` of the result.
    """
    user = read_user_file(user_file) if isinstance(user_file, FilePath) else user_file
    workspace = read_workspace_file(folder) if isinstance(folder, FilePath) else folder
    loading = _Loading(trust, previous.good if previous is not None else {})
    own = loading.file(user)
    theirs = loading.file(workspace)
    clients = [layer for layer in map(loading.client, client) if layer is not None]
    settings, merged = loading.consistent(own, theirs, clients)
    digest = settings_digest(theirs.tree if theirs is not None else None)
    verdict = trust(digest)
    if not verdict.is_trusted and settings.sandbox.setup:
        # Set-up commands run what the folder holds, so even the user's own wait for trust.
        sandbox = settings.sandbox.model_copy(update={"setup": ()})
        settings = settings.model_copy(update={"sandbox": sandbox})
    return LoadedSettings(
        settings=settings,
        origins=merged,
        trust=verdict,
        digest=digest,
        faults=_once(loading.faults),
        refused=_once(loading.refused),
        warnings=_once(loading.warnings),
        files=_looked_at(user, folder if isinstance(folder, FilePath) else None),
        good=loading.good,
    )


def check_file(file: SettingsFile, user: SettingsFile | None = None) -> tuple[ConfigurationFault, ...]:
    """What is wrong with one file, which may name what `user`, the user's own file, defines; trust is not asked."""
    loading = _Loading(lambda _: Trust(True, "it is only checked"), {})
    own = loading.file(user) if user is not None and not _is_same(user.path, file.path) else None
    layer = loading.file(replace(file, place="user"))
    loading.consistent(own, None, [layer] if layer is not None else [])
    told = (*loading.faults, *loading.warnings)
    return tuple(fault for fault in _once(list(told)) if fault.origin.source == str(file.path))


class _Loading:
    """One reading of all places."""

    def __init__(self, trust: Callable[[str], Trust], before: Mapping[str, _Layer]) -> None:
        self.faults: list[ConfigurationFault] = []
        self.refused: list[ConfigurationFault] = []
        self.warnings: list[ConfigurationFault] = []
        self.good: dict[str, _Layer] = {}
        self._ill: dict[str, _Layer] = {}
        """The layers that are at fault, as they are."""
        self._trust = trust
        self._before = before

    def file(self, file: SettingsFile | None) -> _Layer | None:
        """The layer of a file; its last good version when it has a fault."""
        if file is None:
            return None
        if file.fault is None and file.tree is not None:
            return self._checked(file.place, str(file.path), Named(file.tree, camel_case=False), file.origin)
        if file.fault is not None:
            self.faults.append(file.fault)
        return self._keep(self._before.get(str(file.path)))

    def client(self, settings: ClientSettings) -> _Layer | None:
        """The layer of a client's settings; their last good version when they have a fault."""
        tree = {} if settings.tree is None else settings.tree
        if isinstance(tree, Mapping):
            tree = {name: value for name, value in tree.items() if name not in _EDITOR_KEYS}
        origin = Origin("client", settings.source)
        return self._checked("client", settings.source, Named(tree, camel_case=True), lambda _: origin)

    def consistent(
        self, own: _Layer | None, theirs: _Layer | None, clients: list[_Layer]
    ) -> tuple[Settings, MergedTree]:
        """The merged settings; a layer that does not fit the others gives way to its last good version, then goes."""
        layers = [layer for layer in (own, theirs, *clients) if layer is not None]
        gave_way: set[str] = set()
        if self._ill:
            self._look_further(layers)
        while True:
            merged = _merged(self._restricted(layers))
            settings, faults = _judged(merged)
            if settings is not None and not faults:
                return settings, merged
            self.faults += [fault for fault in faults if fault.origin.source not in gave_way]
            sources = [layer.source for layer in layers]
            blamed = {fault.origin.source for fault in faults}.intersection(sources)
            # Nothing that is built in is at fault by itself; should it seem so, the last place goes.
            source = max(blamed, key=sources.index) if blamed else sources[-1]
            index, earlier = sources.index(source), self._before.get(source)
            if earlier is not None and source not in gave_way and earlier.tree != layers[index].tree:
                layers[index] = self.good[source] = earlier
            else:
                del layers[index]
                self.good.pop(source, None)
            gave_way.add(source)

    def _look_further(self, layers: list[_Layer]) -> None:
        """Tell also what in the layers at fault does not fit together or is missing, as if the rest of them counted."""
        order: tuple[Place, ...] = ("user", "workspace", "client")
        others = [layer for layer in layers if layer.source not in self._ill]
        tried = sorted([*others, *self._ill.values()], key=lambda layer: order.index(layer.place))
        _, faults = _judged(_merged(tried))
        self.faults += [fault for fault in faults if fault.origin.source in self._ill]

    def _checked(self, place: Place, source: str, named: Named, origin_of: Callable[[Path], Origin]) -> _Layer | None:
        def located(path: Path, text: str) -> ConfigurationFault:
            return ConfigurationFault(origin_of(path), key_text(path), text)

        self.warnings += [located(path, text) for path, text in named.secrets]
        faults = [located(path, text) for path, text in named.faults]
        try:
            Settings.model_validate(named.tree)
        except ValidationError as error:
            # A table may be completed by another place, so what is missing is looked for after the merge.
            wrong = [fault for fault in error.errors(include_url=False) if fault["type"] != "missing"]
            faults += [located(path_of(fault, named.tree), expectation(fault)) for fault in wrong]
        if faults:
            self.faults += faults
            self._ill[source] = _Layer(place, source, named.tree, origin_of)
            return self._keep(self._before.get(source))
        return self._keep(_Layer(place, source, named.tree, origin_of))

    def _keep(self, layer: _Layer | None) -> _Layer | None:
        if layer is not None:
            self.good[layer.source] = layer
        return layer

    def _restricted(self, layers: list[_Layer]) -> list[_Layer]:
        """The layers without what their places may not set. What a workspace says is judged against all others."""
        theirs = next((layer for layer in layers if layer.place == "workspace"), None)
        # Trust is given to exactly these settings, whichever version of them is in use now.
        is_trusted = self._trust(settings_digest(theirs.tree if theirs is not None else None)).is_trusted
        others = {
            layer.source: self._allowed(layer, {}, is_trusted=is_trusted) for layer in layers if layer is not theirs
        }
        base = _merged(list(others.values())).tree
        return [
            others[layer.source] if layer is not theirs else self._allowed(layer, base, is_trusted=is_trusted)
            for layer in layers
        ]

    def _allowed(self, layer: _Layer, base: Mapping[str, Any], *, is_trusted: bool) -> _Layer:
        tree, refused = allowed(layer.place, layer.tree, base, is_trusted=is_trusted)
        self.refused += [ConfigurationFault(layer.origin_of(path), key_text(path), reason) for path, reason in refused]
        return replace(layer, tree=tree)


def _is_same(first: FilePath, second: FilePath) -> bool:
    return os.path.realpath(first) == os.path.realpath(second)


def _once(faults: list[ConfigurationFault]) -> tuple[ConfigurationFault, ...]:
    return tuple(dict.fromkeys(faults))


def _judged(merged: MergedTree) -> tuple[Settings | None, list[ConfigurationFault]]:
    settings, faults = judged(merged.tree)
    return settings, [_located(merged, path, text) for path, text in faults]


def _located(merged: MergedTree, path: Path, text: str) -> ConfigurationFault:
    return ConfigurationFault(merged.origin(path) or _BUILT_IN, key_text(path), text)


def _merged(layers: Sequence[_Layer]) -> MergedTree:
    merged = MergedTree()
    merged.add(BUILT_IN, lambda _: _BUILT_IN)
    for layer in layers:
        merged.add(layer.tree, layer.origin_of)
    return merged


def _looked_at(user: SettingsFile | None, folder: FilePath | None) -> tuple[FilePath, ...]:
    files = [user.path] if user is not None else []
    if folder is not None:
        files += [folder / "outpost.toml", folder / "pyproject.toml"]
    return tuple(files)
