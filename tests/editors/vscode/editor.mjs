/**
 * A real Visual Studio Code in a browser, for tests: code-server on loopback with settings, extensions and state of its
 * own, and one page for each folder that is opened in it. Everything waits for conditions; nothing sleeps for a time.
 */

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { PATIENCE_MS, until } from "./waiting.mjs";
import { listen, Window } from "./window.mjs";

const { OUTPOST_EDITORS_DIR, OUTPOST_VSIX, OUTPOST_LSP } = process.env;
const { chromium } = createRequire(join(OUTPOST_EDITORS_DIR, "package.json"))("playwright-core");
const ENTRY = join(OUTPOST_EDITORS_DIR, "node_modules/code-server/out/node/entry.js");

const QUIET = {
  "chat.commandCenter.enabled": false,
  "extensions.autoCheckUpdates": false,
  "extensions.autoUpdate": false,
  "extensions.ignoreRecommendations": true,
  "git.openRepositoryInParentFolders": "never",
  "security.workspace.trust.enabled": false,
  "telemetry.telemetryLevel": "off",
  "update.mode": "none",
  "window.commandCenter": false,
  "workbench.startupEditor": "none",
  "workbench.hover.delay": 600_000,
  "workbench.tips.enabled": false,
  "workbench.editor.enablePreview": false,
  // What takes the focus, on its way when a test opens a box, would close the box.
  "workbench.quickOpen.closeOnFocusLost": false,
  "editor.accessibilitySupport": "off",
};

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A git repository with a first commit of some files, in which the editor can commit, too. */
export function makeRepository(folder, files) {
  mkdirSync(folder, { recursive: true });
  const git = (...parameters) => execFileSync("git", parameters, { cwd: folder });
  git("init", "--quiet", "--initial-branch=main");
  git("config", "user.name", "Test");
  git("config", "user.email", "test@example.org");
  writeFiles(folder, files);
  git("add", "--all");
  git("commit", "--quiet", "--message=first");
  return folder;
}

export function writeFiles(folder, files) {
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(join(folder, path, ".."), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
}

/** The editor's server. `stop` ends it with all that it started. */
export class Editor {
  /** `settings` are the user's; `trust`: whether the editor asks for trust; `environment`: more variables; `vsix`: the package. */
  static async start({ settings = {}, trust = false, environment = {}, vsix = OUTPOST_VSIX } = {}) {
    const home = mkdtempSync(join(tmpdir(), "outpost-vscode-"));
    const editor = new Editor(home, await freePort(), trust);
    for (const name of ["User", "Machine"]) {
      mkdirSync(join(home, "data", name), { recursive: true });
    }
    editor.configure(settings);
    writeFileSync(join(home, "config.yaml"), "auth: none\ncert: false\n");
    writeFileSync(join(home, "outpost.toml"), "");
    editor.environment = {
      ...process.env,
      HOME: home,
      XDG_CONFIG_HOME: join(home, "config"),
      XDG_DATA_HOME: join(home, "share"),
      XDG_STATE_HOME: join(home, "state"),
      XDG_CACHE_HOME: join(home, "cache"),
      OUTPOST_CONFIG: join(home, "outpost.toml"),
      ...environment,
    };
    if (environment.PATH !== undefined) {
      // The editor takes the search path that the person's shell tells it at login.
      editor.environment.SHELL = "/bin/sh";
      writeFileSync(join(home, ".profile"), `PATH='${environment.PATH}'\n`);
    }
    execFileSync(process.execPath, [ENTRY, ...editor.common, "--install-extension", vsix], {
      env: editor.environment,
      stdio: "pipe",
    });
    await editor.serve();
    return editor;
  }

  constructor(home, port, trust) {
    this.home = home;
    this.port = port;
    this.trust = trust;
    this.output = "";
  }

  get common() {
    const { home } = this;
    return [
      "--user-data-dir",
      join(home, "data"),
      "--extensions-dir",
      join(home, "ext"),
      "--config",
      join(home, "config.yaml"),
    ];
  }

  get url() {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Where the machine's settings are, which are the extension's that name programs, services and keys. */
  get settingsFile() {
    return join(this.home, "data", "Machine", "settings.json");
  }

  /** Write the user's settings: these, and those that keep the editor quiet. */
  configure(settings) {
    const ours = ([name]) => name.startsWith("outpost.");
    const all = Object.entries({ ...QUIET, "outpost.serverPath": OUTPOST_LSP, ...settings });
    const users = Object.fromEntries(all.filter((entry) => !ours(entry)));
    if (this.trust) {
      delete users["security.workspace.trust.enabled"];
    }
    writeFileSync(join(this.home, "data", "User", "settings.json"), JSON.stringify(users));
    writeFileSync(this.settingsFile, JSON.stringify(Object.fromEntries(all.filter(ours))));
  }

  async serve() {
    const quiet = [
      "--disable-telemetry",
      "--disable-update-check",
      ...(this.trust ? [] : ["--disable-workspace-trust"]),
    ];
    this.process = spawn(
      process.execPath,
      [ENTRY, ...this.common, "--auth", "none", "--bind-addr", `127.0.0.1:${this.port}`, ...quiet],
      { env: this.environment, stdio: ["ignore", "pipe", "pipe"], detached: true },
    );
    for (const stream of [this.process.stdout, this.process.stderr]) {
      stream.on("data", (data) => (this.output += data));
    }
    await until("the editor's server answers", () =>
      fetch(`${this.url}/healthz`).then(
        ({ ok }) => ok,
        () => false,
      ),
    );
    this.browser = await chromium.launch({
      executablePath: process.env.OUTPOST_CHROMIUM ?? "/usr/bin/chromium",
      args: [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-sync",
      ],
    });
  }

  /** Open a folder, with a file of it when one is named. */
  async open(folder, file) {
    const context = await this.browser.newContext({
      viewport: { width: 1400, height: 900 },
      permissions: ["clipboard-read", "clipboard-write"],
    });
    context.setDefaultTimeout(PATIENCE_MS);
    await listen(context);
    const page = await context.newPage();
    const window = new Window(this, page, folder);
    await page.goto(window.address);
    await page.waitForSelector(".monaco-workbench");
    if (folder.endsWith(".code-workspace")) {
      await window.hasFolders();
    }
    if (file !== undefined) {
      await window.openFile(file);
    }
    return window;
  }

  /** Take a picture of each window that is open. */
  async pictures(name) {
    const pages = this.browser?.contexts().flatMap((context) => context.pages()) ?? [];
    for (const [number, page] of pages.entries()) {
      const path = join(process.env.OUTPOST_PICTURES, `vscode-${name}-${number + 1}.png`);
      await page.screenshot({ animations: "disabled", path }).catch(() => undefined);
    }
  }

  /** Everything that the extension wrote to its output. */
  log() {
    const found = [];
    const walk = (folder) => {
      for (const entry of readdirSync(folder, { withFileTypes: true })) {
        const path = join(folder, entry.name);
        if (entry.isDirectory()) {
          walk(path);
        } else if (path.includes("outpost-lsp.outpost-lsp") && path.endsWith(".log")) {
          found.push(readFileSync(path, "utf8"));
        }
      }
    };
    walk(join(this.home, "data", "logs"));
    return found.join("\n");
  }

  async stop() {
    await this.browser?.close();
    try {
      process.kill(-this.process.pid, "SIGTERM");
      await until(
        "the editor's server has ended",
        () => this.process.exitCode !== null || this.process.signalCode !== null,
      );
    } catch {
      process.kill(-this.process.pid, "SIGKILL");
    }
    rmSync(this.home, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  }
}

/** A test that keeps a picture of each window and the log when it fails; `editorOf` tells its editor. */
export function step(name, editorOf, work) {
  test(name, async () => {
    try {
      await work();
    } catch (error) {
      await editorOf()?.pictures(`failed-${name.replace(/\W+/gu, "-")}`);
      console.log(editorOf()?.log().slice(-4000));
      throw error;
    }
  });
}
