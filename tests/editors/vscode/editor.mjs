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
import { setTimeout as pause } from "node:timers/promises";

const { OUTPOST_EDITORS_DIR, OUTPOST_VSIX, OUTPOST_LSP, OUTPOST_PICTURES } = process.env;
const { chromium } = createRequire(join(OUTPOST_EDITORS_DIR, "package.json"))("playwright-core");
const ENTRY = join(OUTPOST_EDITORS_DIR, "node_modules/code-server/out/node/entry.js");
const PATIENCE_MS = 60_000;

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
  "editor.accessibilitySupport": "off",
};

export async function until(what, condition, patience = PATIENCE_MS) {
  const end = Date.now() + patience;
  for (;;) {
    const value = await condition();
    if (value) {
      return value;
    }
    if (Date.now() > end) {
      throw new Error(`it never came to this: ${what}`);
    }
    await pause(50);
  }
}

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A git repository with a first commit of some files. */
export function makeRepository(folder, files) {
  mkdirSync(folder, { recursive: true });
  const git = (...parameters) =>
    execFileSync("git", ["-c", "user.name=Test", "-c", "user.email=test@example.org", ...parameters], { cwd: folder });
  git("init", "--quiet", "--initial-branch=main");
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
    const page = await context.newPage();
    const window = new Window(this, page, folder);
    page.on("pageerror", (error) => window.errors.push(String(error)));
    await page.goto(window.address);
    await page.waitForSelector(".monaco-workbench", { timeout: PATIENCE_MS });
    if (file !== undefined) {
      await window.openFile(file);
    }
    return window;
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

/** One window of the editor. */
export class Window {
  constructor(editor, page, folder) {
    this.editor = editor;
    this.page = page;
    this.folder = folder;
    this.errors = [];
  }

  get address() {
    const kind = this.folder.endsWith(".code-workspace") ? "workspace" : "folder";
    return `${this.editor.url}/?${kind}=${encodeURIComponent(this.folder)}`;
  }

  async openFile(file) {
    const name = file.split("/").at(-1);
    await this.type("Control+P", file, this.page.locator(".quick-input-list .monaco-list-row", { hasText: name }));
    await this.page.keyboard.press("Enter");
    await this.see(".tab", name);
  }

  /** The first element that a selector and a text find, once it is to be seen. */
  async see(selector, text, patience = PATIENCE_MS) {
    const found = text === undefined ? this.page.locator(selector) : this.page.locator(selector, { hasText: text });
    await found.first().waitFor({ state: "visible", timeout: patience });
    return found.first();
  }

  async gone(selector, text) {
    const found = text === undefined ? this.page.locator(selector) : this.page.locator(selector, { hasText: text });
    await until(`${selector} ${text ?? ""} is gone`, async () => (await found.count()) === 0);
  }

  /** The page of a timeline that is open. */
  timeline() {
    return this.page.frameLocator("iframe.webview").frameLocator("iframe");
  }

  status(text) {
    return this.see("footer .statusbar-item", text);
  }

  /** Run a command by its title in the palette. */
  async command(title) {
    const row = this.page.locator(".quick-input-list .monaco-list-row", { hasText: title });
    await this.type("F1", `>${title}`, row);
    await this.page.keyboard.press("Enter");
  }

  /** Type into the box that a key opens until a row is there. Whatever takes the focus meanwhile closes the box. */
  async type(key, text, row) {
    const input = this.page.locator(".quick-input-widget input.input");
    await until(`a row for ${text}`, async () => {
      try {
        await this.page.keyboard.press(key);
        await input.fill(text, { timeout: 2000 });
        await row.first().waitFor({ state: "visible", timeout: 10_000 });
        return true;
      } catch {
        await this.page.keyboard.press("Escape");
        return false;
      }
    });
  }

  /** Pick an entry of the list that is open. */
  async pick(text) {
    const row = await this.see(".quick-input-list .monaco-list-row", text);
    await row.click();
  }

  /** Answer the input box that is open. */
  async answer(text) {
    const input = this.page.locator(".quick-input-widget input.input");
    await input.waitFor({ state: "visible" });
    await input.fill(text);
    await this.page.keyboard.press("Enter");
  }

  /** A row of one of the extension's views. */
  row(view, text) {
    return this.see(`.pane:has(.pane-header[aria-label^="${view}"]) .monaco-list-row`, text);
  }

  /** Open a row that has others below it. */
  async expand(view, text) {
    await until(`${text} is open`, async () => {
      const row = await this.row(view, text);
      if ((await row.getAttribute("aria-expanded")) === "true") {
        return true;
      }
      // The row may be drawn anew just now, which loses the click.
      await row
        .locator(".monaco-tl-twistie")
        .click({ timeout: 1000 })
        .catch(() => undefined);
      return false;
    });
  }

  rows(view) {
    return this.page.locator(`.pane:has(.pane-header[aria-label^="${view}"]) .monaco-list-row`).allInnerTexts();
  }

  /** A row's own button. */
  async act(view, text, title) {
    const row = await this.row(view, text);
    await row.hover();
    await row.locator(`.action-label[aria-label^="${title}"]`).first().click();
  }

  notification(text, patience) {
    return this.see(".notification-list-item, .notification-toast", text, patience);
  }

  async press(notification, button) {
    const toast = await this.notification(notification);
    await toast.locator(".monaco-button", { hasText: button }).first().click();
  }

  /** Press a button of the dialog that is open. */
  async confirm(button) {
    await this.see(".monaco-dialog-box .monaco-button", button);
    await this.page.locator(".monaco-dialog-box").getByRole("button", { name: button, exact: true }).click();
  }

  /** Give the side bar more room, as a person does with the mouse. */
  async widen(width) {
    const { mouse } = this.page;
    const bar = await (await this.see(".part.sidebar")).boundingBox();
    await mouse.move(bar.x + bar.width, bar.y + bar.height / 2);
    await mouse.down();
    await mouse.move(bar.x + width, bar.y + bar.height / 2, { steps: 4 });
    await mouse.up();
    await mouse.move(bar.x + width + 200, bar.y + bar.height / 2);
  }

  async editorText() {
    const lines = await this.page.locator(".editor-instance .view-lines .view-line").allInnerTexts();
    return lines.join("\n").replace(/\u00a0/gu, " ");
  }

  async picture(name) {
    await this.page.screenshot({ animations: "disabled", path: join(OUTPOST_PICTURES, `vscode-${name}.png`) });
  }

  /** Load the window again as the editor does it, with its state kept. */
  async reload() {
    await Promise.all([this.page.waitForEvent("load"), this.command("Developer: Reload Window")]);
    await this.page.waitForSelector(".monaco-workbench", { timeout: PATIENCE_MS });
  }

  async close() {
    await this.page.context().close();
  }
}

/** Keeps a picture and the log of what failed. */
export async function keepEvidence(editor, window, name) {
  await window?.picture(`failed-${name}`).catch(() => undefined);
  console.log(editor?.log().slice(-4000));
}
