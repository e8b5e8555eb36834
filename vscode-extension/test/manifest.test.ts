/** The manifest and the code agree; and what the manifest lets a folder decide is harmless. */

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { activate, deactivate } from "../src/extension";
import { OWN_SETTINGS, serverProperties, serverSettings } from "../src/settings";
import { stage, Uri, workspace } from "./stub/editor";

interface Item {
  readonly command: string;
  readonly when?: string;
}

interface Setting {
  readonly scope: string;
  readonly type: string;
  readonly default?: unknown;
}

interface Manifest {
  readonly main: string;
  readonly version: string;
  readonly engines: { readonly vscode: string };
  readonly devDependencies: Readonly<Record<string, string>>;
  readonly capabilities: {
    readonly untrustedWorkspaces: { readonly supported: string; readonly restrictedConfigurations: readonly string[] };
  };
  readonly contributes: {
    readonly commands: readonly { readonly command: string; readonly enablement?: string }[];
    readonly menus: Readonly<Record<string, readonly Item[]>>;
    readonly keybindings: readonly Item[];
    readonly configuration: readonly { readonly properties: Readonly<Record<string, Setting>> }[];
    readonly views: Readonly<Record<string, readonly { readonly id: string }[]>>;
  };
}

const manifest = JSON.parse(readFileSync("package.json", "utf8")) as Manifest;
const settings = Object.assign({}, ...manifest.contributes.configuration.map(({ properties }) => properties)) as Record<
  string,
  Setting
>;
const storage = join(process.cwd(), ".test-build", "storage");
let took = 0;

before(() => {
  stage.reset();
  stage.settings["outpost.serverPath"] = "/nowhere/outpost-lsp";
  const begin = performance.now();
  activate({
    subscriptions: [],
    extensionUri: Uri.file(process.cwd()),
    globalStorageUri: Uri.file(storage),
    extension: { packageJSON: manifest },
    secrets: { get: () => Promise.resolve(undefined) },
    globalState: { get: (_: string, fallback: unknown) => fallback },
  } as never);
  took = performance.now() - begin;
});

after(() => deactivate());

test("activation is quick and says nothing, though there is no server", () => {
  assert.ok(took < 300, `${took.toFixed(0)} ms`);
  assert.deepEqual(stage.dialogs, []);
});

test("every command of the manifest is there, and every command that is there is in the manifest", () => {
  const contributed = manifest.contributes.commands.map(({ command }) => command).sort();
  assert.deepEqual([...stage.registered.keys()].sort(), contributed);
});

test("the palette's commands have ids of their own, which no server registers", () => {
  assert.deepEqual(
    manifest.contributes.commands.filter(({ command }) => !command.startsWith("outpost.ui.")),
    [],
  );
});

test("menus and keys name commands that exist", () => {
  const known = new Set(manifest.contributes.commands.map(({ command }) => command));
  const used = [...Object.values(manifest.contributes.menus).flat(), ...manifest.contributes.keybindings];
  assert.deepEqual(
    used.filter(({ command }) => !known.has(command)),
    [],
  );
  const text = JSON.stringify(manifest);
  const links = [...text.matchAll(/command:(outpost\.[\w.]+)/gu)].map(([, id]) => id ?? "");
  const focus = Object.values(manifest.contributes.views)
    .flat()
    .map(({ id }) => `${id}.focus`);
  assert.deepEqual(
    links.filter((id) => !known.has(id) && !focus.includes(id)),
    [],
  );
});

test("the extension's own settings are in the manifest", () => {
  assert.deepEqual(
    OWN_SETTINGS.filter((name) => !(`outpost.${name}` in settings)),
    [],
  );
});

test("what names a program, a service or a key is for the machine only", () => {
  const dangerous =
    /\.(?:serverPath|serverArguments|interpreter|providers|models|deciders|routing|agents|mcp|http\..*|runs\..*|sandbox\.(?:directory|copyIgnored|setup|shell))$/u;
  const named = Object.entries(settings).filter(([name]) => dangerous.test(name));
  assert.ok(named.length >= 15);
  assert.deepEqual(
    named.filter(([, { scope }]) => scope !== "machine"),
    [],
  );
});

test("a folder that is not trusted decides about the looks only", () => {
  const { supported, restrictedConfigurations } = manifest.capabilities.untrustedWorkspaces;
  assert.equal(supported, "limited");
  const free = Object.entries(settings).filter(
    ([name, { scope }]) => scope !== "window" && !restrictedConfigurations.includes(name),
  );
  assert.deepEqual(
    free.map(([name]) => name),
    [],
  );
});

test("agents that act need a trusted folder", () => {
  const needing = ["coordinate", "dispatch", "fix", "continue", "fork"].map((name) => `outpost.ui.${name}`);
  const found = manifest.contributes.commands.filter(({ command }) => needing.includes(command));
  assert.deepEqual(
    found.map(({ enablement }) => enablement),
    needing.map(() => "isWorkspaceTrusted"),
  );
});

test("the oldest editor that is promised is the one whose interface is compiled against", () => {
  assert.equal(manifest.engines.vscode, `^${manifest.devDependencies["@types/vscode"] ?? ""}`);
});

test("dependencies are pinned, and the lock file names no registry", () => {
  assert.deepEqual(
    Object.values(manifest.devDependencies).filter((version) => !/^\d+\.\d+\.\d+$/u.test(version)),
    [],
  );
  assert.doesNotMatch(readFileSync("package-lock.json", "utf8"), /"resolved"/u);
});

test("the package has the parts that the manifest names", () => {
  const media = readdirSync("media", { recursive: true }).map((name) => `media/${String(name)}`);
  const wanted = [...JSON.stringify(manifest).matchAll(/"(media\/[^"]+)"/gu)].map(([, path]) => path ?? "");
  assert.ok(wanted.length > 5);
  assert.deepEqual(
    wanted.filter((path) => !media.includes(path)),
    [],
  );
});

// Settings on their way to the server

const properties = serverProperties(manifest);

test("only what the user set is passed on, in the shape of the configuration file", () => {
  stage.layers = {
    "outpost.defaultModel": { globalValue: "main" },
    "outpost.review.outsideDiff": { workspaceValue: "drop" },
    "outpost.models": { globalValue: { main: {} } },
  };
  stage.settings = {
    "outpost.defaultModel": "main",
    "outpost.review.outsideDiff": "drop",
    "outpost.models": { main: {} },
    "outpost.review.maxFindings": 100,
  };
  assert.deepEqual(serverSettings(properties, undefined), {
    defaultModel: "main",
    review: { outsideDiff: "drop" },
    models: { main: {} },
  });
});

test("a machine setting that a folder brings counts for nothing, and ours are never passed on", () => {
  stage.layers = {
    "outpost.providers": { workspaceValue: { evil: {} } },
    "outpost.serverPath": { globalValue: "/x" },
    "outpost.findings.group": { globalValue: "severity" },
  };
  stage.settings = { "outpost.providers": { evil: {} }, "outpost.serverPath": "/x" };
  assert.deepEqual(serverSettings(properties, workspace.workspaceFolders?.[0]?.uri as never), {});
});
