/** What goes wrong in real life: no server, a server that keeps dying, no repository, no trust, keys in the open. */

import assert from "node:assert/strict";
import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe } from "node:test";

import { Editor, makeRepository, step as keep, writeFiles } from "./editor.mjs";
import { insist, until } from "./waiting.mjs";

const folder = mkdtempSync(join(tmpdir(), "outpost-trouble-"));
const repository = makeRepository(join(folder, "repository"), { "a.py": "def f(x):\n    return x\n" });
writeFiles(repository, { "a.py": "def f(x):\n    if x is 0:\n        return nothing\n    return x\n" });
const plain = join(folder, "plain");
writeFiles(plain, { "a.py": "print(1)\n" });

function script(name, text) {
  const path = join(folder, name);
  writeFileSync(path, `#!/bin/sh\n${text}\n`);
  chmodSync(path, 0o755);
  return path;
}

let editor;
let window;

const step = (name, work) => keep(name, () => editor, work);

describe("the server", () => {
  before(async () => {
    // A search path on which there is no server, and a Python that says it is old.
    editor = await Editor.start({
      settings: { "outpost.serverPath": "", "outpost.interpreter": script("python-old", "echo outpost 3 9 2") },
      environment: { PATH: "/usr/bin:/bin" },
    });
    window = await editor.open(repository, "a.py");
  });
  after(() => editor?.stop());

  step("one that is missing is no error; setting it up asks before anything is fetched", async () => {
    await window.status("Outpost: set up");
    assert.deepEqual(await window.notifications(), []);
    await window.command("View: Show Outpost");
    await window.see(".welcome-view-content", "not installed yet");
    await window.command("Outpost: Review Uncommitted Work");
    await window.see(".monaco-dialog-box", "from your Python package index");
    await window.picture("set-up");
    await window.confirm("Cancel");
    await window.status("Outpost: set up");
    assert.deepEqual(await window.notifications(), []);
    await window.command("Outpost: Open the Walkthrough");
    await window.see(".getting-started-step", "Set up the server");
    await window.command("View: Close Editor");
  });

  step("a Python that is too old, or not there, is named", async () => {
    await window.command("Outpost: Set Up the Server…");
    await window.confirm("Install");
    await window.notification("Python 3.9.2 is too old; 3.11 or later is needed");
    editor.configure({ "outpost.serverPath": "", "outpost.interpreter": "/nowhere/python3" });
    await insist("the one that is not there is named", async (timeout) => {
      await window.command("Outpost: Set Up the Server…");
      await window.confirm("Install");
      await window.notification("/nowhere/python3 (the setting outpost.interpreter): it is not there", timeout);
    });
    await window.clear();
  });

  step("one that dies five times in a row is given up with its reason, and restarts when it is mended", async () => {
    editor.configure({ "outpost.serverPath": script("dying", "echo 'ImportError: no outpost' >&2; exit 1") });
    await window.notification("ended several times in a row");
    await window.notification("ImportError: no outpost");
    await window.status("Outpost: stopped");
    await window.picture("given-up");
    writeFileSync(join(folder, "dying"), `#!/bin/sh\nexec "${process.env.OUTPOST_LSP}" "$@"\n`);
    await window.press("ended several times in a row", "Restart");
    await window.status("Outpost: idle");
  });

  step("a key in the settings is moved to the secret storage", async () => {
    const key = "sk-canary0123456789abcdef";
    editor.configure({
      "outpost.providers": { service: { kind: "openai", baseUrl: "http://127.0.0.1:9/v1", apiKey: key } },
    });
    await window.reload();
    await window.press("the settings hold a key in clear (service)", "Move to Secret Storage");
    await window.notification("1 key moved");
    const written = readFileSync(editor.settingsFile, "utf8");
    assert.ok(!written.includes(key));
    assert.deepEqual(JSON.parse(written)["outpost.providers"].service, {
      kind: "openai",
      baseUrl: "http://127.0.0.1:9/v1",
      apiKeyEnv: "SERVICE_API_KEY",
    });
    assert.ok(!editor.log().includes(key));
  });

  step("two windows on one folder both work", async () => {
    const other = await editor.open(repository, "a.py");
    for (const one of [other, window]) {
      await one.status("Outpost: idle");
      await one.command("Outpost: Review Uncommitted Work");
    }
    for (const one of [other, window]) {
      await one.notification("Review of the uncommitted changes: 2 findings");
    }
    await other.close();
  });

  step("with several folders the person is asked which, and each finding is of its own", async () => {
    const second = makeRepository(join(folder, "second"), { "b.py": "def g():\n    return 1\n" });
    writeFiles(second, { "b.py": "def g():\n    return missing\n" });
    const file = join(folder, "both.code-workspace");
    writeFileSync(file, JSON.stringify({ folders: [{ path: repository }, { path: second }] }));
    const other = await editor.open(file);
    await other.status("Outpost: idle");
    await other.command("View: Show Outpost");
    await other.command("Outpost: Review Uncommitted Work");
    await other.pick("second");
    await other.notification("1 finding");
    await other.row("Findings", "`missing` is not defined");
    await other.close();
  });

  step("a folder without a repository is said to be one", async () => {
    const other = await editor.open(plain, "a.py");
    await other.status("Outpost: idle");
    await other.command("Outpost: Review Uncommitted Work");
    await other.notification("git");
    await other.picture("no-repository");
    await other.close();
  });
});

describe("a bare machine", () => {
  before(async () => {
    // A search path on which there is nothing at all.
    const bare = mkdtempSync(join(folder, "bare-"));
    editor = await Editor.start({ settings: { "outpost.serverPath": "" }, environment: { PATH: bare } });
    window = await editor.open(repository, "a.py");
  });
  after(() => editor?.stop());

  step("without any Python that is said, with ways out", async () => {
    await window.status("Outpost: set up");
    await window.command("Outpost: Set Up the Server…");
    await window.confirm("Install");
    await window.notification("Outpost needs Python 3.11 or later, and there is none in PATH.");
    await window.notification("Get Python");
    await window.picture("no-python");
    await window.press("there is none in PATH", "Choose a Python…");
    await window.see(".settings-editor", "Interpreter");
    await window.command("View: Close Editor");
  });

  step("without git that is said, and the server stays", async () => {
    editor.configure({});
    await window.status("Outpost: idle");
    await window.command("Outpost: Review Uncommitted Work");
    await window.notification("git was not found in PATH; install git 2.38 or newer");
    await window.picture("no-git");
    await window.command("Outpost: Check the Installation");
    await until("the check says so", async () => /FAIL\s+git/u.test(await window.editorText()));
    await window.status("Outpost: idle");
  });
});

describe("trust", () => {
  before(async () => {
    editor = await Editor.start({
      trust: true,
      settings: { "security.workspace.trust.startupPrompt": "never", "security.workspace.trust.banner": "never" },
    });
    window = await editor.open(repository, "a.py");
  });
  after(() => editor?.stop());

  step("in a folder that is not trusted a review is agreed to, and nothing that acts can be started", async () => {
    await window.status("Restricted Mode");
    await window.status("Outpost: idle");
    await window.command("Outpost: Review Uncommitted Work");
    await window.see(".monaco-dialog-box", "This folder is not trusted");
    await window.picture("not-trusted");
    await window.confirm("Review");
    await window.notification("Review of the uncommitted changes: 2 findings");
    for (const title of ["Coordinate…", "Run an Agent…", "Fix with an Agent"]) {
      assert.ok(!(await window.isOffered(`Outpost: ${title}`, "Outpost: Review Uncommitted Work")), title);
    }
  });

  step("a walkthrough that is opened later has the review ticked", async () => {
    await window.command("Outpost: Open the Walkthrough");
    const title = "Review your uncommitted work";
    await window.see(".getting-started-step:has(.codicon.complete)", title);
    await window.see(".getting-started-step:not(:has(.codicon.complete))", "Let agents delegate");
    await window.picture("walkthrough-later");
    await window.command("View: Close Editor");
  });

  step("trust that is given reaches the server", async () => {
    await window.command("Workspaces: Manage Workspace Trust");
    await insist("the folder is trusted", (timeout) =>
      window.find(".workspace-trust-editor .monaco-button", "Trust").click({ timeout }),
    );
    await window.gone("footer .statusbar-item", "Restricted Mode");
    assert.ok(await window.isOffered("Outpost: Run an Agent…", "Outpost: Review Uncommitted Work"));
    await insist(
      "the server says so",
      async (timeout) => {
        await window.command("Outpost: Check the Installation");
        await until("it is told", async () => /trust: trusted/u.test(await window.editorText()), timeout);
      },
      () => window.command("View: Close Editor"),
    );
  });
});
