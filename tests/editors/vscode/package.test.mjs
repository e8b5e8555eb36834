/**
 * The package that brings the server along: it installs it without the network and without a word, and works.
 *
 * Runs with OUTPOST_PLATFORM_VSIX, the package for this platform.
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe } from "node:test";

import { Editor, makeRepository, step, writeFiles } from "./editor.mjs";

const { OUTPOST_PLATFORM_VSIX } = process.env;
/** Where the system's own Python is, beneath whatever environment the tests run in. */
const ASK_FOR_PYTHON = "import os, sys; print(os.path.realpath(sys._base_executable))";
let editor;
let window;

after(() => editor?.stop());

describe("with the package of this platform", { skip: OUTPOST_PLATFORM_VSIX === undefined && "there is none" }, () => {
  before(async () => {
    const repository = makeRepository(mkdtempSync(join(tmpdir(), "outpost-package-")), {
      "a.py": "def f():\n    return 1\n",
    });
    writeFiles(repository, { "a.py": "def f():\n    return missing\n" });
    // A package index that is nowhere, and a search path on which there is no server.
    const python = execFileSync("python3", ["-c", ASK_FOR_PYTHON], { encoding: "utf8" }).trim();
    const environment = {
      PATH: `/usr/bin:/bin:${dirname(python)}`,
      PIP_INDEX_URL: "http://127.0.0.1:9/simple",
      PIP_CONFIG_FILE: "/dev/null",
    };
    editor = await Editor.start({ settings: { "outpost.serverPath": "" }, environment, vsix: OUTPOST_PLATFORM_VSIX });
    window = await editor.open(repository, "a.py");
  });

  const scene = () => editor;

  step("the server is installed from the package alone", scene, async () => {
    await window.status("Outpost: idle");
    await window.command("Outpost: Review Uncommitted Work");
    await window.notification("Review of the uncommitted changes: 1 finding");
    await window.picture("package");
  });
});
