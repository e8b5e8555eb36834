/**
 * The package that brings the server along: it installs it without the network and without a word, and works.
 *
 * Runs with OUTPOST_PLATFORM_VSIX, the package for this platform.
 */

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { Editor, keepEvidence, makeRepository, writeFiles } from "./editor.mjs";

const { OUTPOST_PLATFORM_VSIX } = process.env;
let editor;

after(() => editor?.stop());

test(
  "the server is installed from the package alone",
  { skip: OUTPOST_PLATFORM_VSIX === undefined && "no package for this platform" },
  async () => {
    const repository = makeRepository(mkdtempSync(join(tmpdir(), "outpost-package-")), {
      "a.py": "def f():\n    return 1\n",
    });
    writeFiles(repository, { "a.py": "def f():\n    return missing\n" });
    // A package index that is nowhere, and a search path on which there is no server.
    const environment = {
      PATH: "/usr/bin:/bin",
      PIP_INDEX_URL: "http://127.0.0.1:9/simple",
      PIP_CONFIG_FILE: "/dev/null",
    };
    editor = await Editor.start({ settings: { "outpost.serverPath": "" }, environment, vsix: OUTPOST_PLATFORM_VSIX });
    const window = await editor.open(repository, "a.py");
    try {
      await window.status("Outpost: idle");
      await window.command("Outpost: Review Uncommitted Work");
      await window.notification("Review of the uncommitted changes: 1 finding");
      await window.picture("package");
    } catch (error) {
      await keepEvidence(editor, window, "package");
      throw error;
    }
  },
);
