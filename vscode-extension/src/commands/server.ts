/** The server itself: install, restart, log, health, keys; and the menu behind the status bar. */

import { commands, QuickPickItemKind, window, workspace, type LogOutputChannel, type QuickPickItem } from "vscode";

import type { Questions } from "../permissions";
import type { Check } from "../protocol";
import { strayKeys, type Keys, type Providers } from "../secrets";
import { openSettings } from "../settings";
import { plural } from "../text";
import type { Texts } from "../texts";
import type { Context, Handler } from "./context";

export interface ServerControl {
  restart(): Promise<void>;
  setUp(): Promise<void>;
}

export function serverCommands(
  context: Context,
  server: ServerControl,
  keys: Keys,
  questions: Questions,
  log: LogOutputChannel,
  texts: Texts,
): Record<string, Handler> {
  const { session } = context;
  return {
    "outpost.ui.restart": () => server.restart(),
    "outpost.ui.setUp": () => server.setUp(),
    "outpost.ui.showLog": () => {
      log.show();
      return undefined;
    },
    "outpost.ui.menu": () => menu(context),
    "outpost.ui.answerQuestion": () => questions.askAgain(),
    "outpost.ui.setKey": (provider) => setKey(keys, provider),
    "outpost.ui.deleteKey": () => deleteKey(keys),
    "outpost.ui.moveKeys": () => moveKeys(keys),
    "outpost.ui.doctor": async () => {
      const { checks } = await session.request("outpost.doctor", {});
      await texts.show("Outpost Installation", checks.map(checkLine).join("\n"));
    },
    "outpost.ui.worktrees": async () => {
      const { worktrees } = await session.request("outpost.worktrees", {});
      const lines = worktrees.map(({ path, runId, size, inUse, changed }) =>
        [
          path,
          runId,
          `${(size / 2 ** 20).toFixed(1)} MiB`,
          inUse ? "in use" : "idle",
          changed ? "changed" : "unchanged",
        ].join("  "),
      );
      const answer = await window.showInformationMessage(
        `Outpost: ${plural(worktrees.length, "worktree")}.`,
        ...(worktrees.length > 0 ? ["Show", "Prune"] : []),
      );
      if (answer === "Show") {
        await texts.show("Outpost Worktrees", lines.join("\n"));
      } else if (answer === "Prune") {
        const left = await session.request("outpost.worktrees", { prune: true });
        void window.showInformationMessage(
          `Outpost: ${plural(worktrees.length - left.worktrees.length, "worktree")} removed.`,
        );
      }
    },
    "outpost.ui.openSettings": () => openSettings("@ext:outpost-lsp.outpost-lsp"),
    "outpost.ui.openWalkthrough": () =>
      run("workbench.action.openWalkthrough", "outpost-lsp.outpost-lsp#outpost.start", false),
  };
}

async function run(command: string, ...parameters: unknown[]): Promise<void> {
  await commands.executeCommand(command, ...parameters);
}

function checkLine({ name, status, detail }: Check): string {
  return `${{ ok: "ok  ", warn: "warn", fail: "FAIL" }[status]}  ${name}: ${detail}`;
}

async function menu({ runs, session }: Context): Promise<void> {
  const live = runs.live();
  const separator = { label: "", kind: QuickPickItemKind.Separator };
  const items: (QuickPickItem & { command?: string })[] = [
    { label: "$(telescope) Review Uncommitted Work", command: "outpost.ui.reviewUncommitted" },
    { label: "$(search) Review…", description: "another scope, agent or instruction", command: "outpost.ui.review" },
    { label: "$(organization) Coordinate…", description: "an agent that delegates", command: "outpost.ui.coordinate" },
    separator,
    { label: "$(list-tree) Show Runs", command: "outpost.runs.focus" },
    { label: "$(checklist) Show Findings", command: "outpost.findings.focus" },
    ...(live.length > 0
      ? [
          { label: "$(comment) Steer…", command: "outpost.ui.steer" },
          { label: "$(debug-stop) Cancel…", command: "outpost.ui.cancel" },
        ]
      : []),
    separator,
    { label: "$(key) Set API Key…", command: "outpost.ui.setKey" },
    { label: "$(pulse) Check the Installation", command: "outpost.ui.doctor" },
    { label: "$(gear) Settings", command: "outpost.ui.openSettings" },
    { label: "$(output) Show Output", command: "outpost.ui.showLog" },
    {
      label: session.isRunning ? "$(debug-restart) Restart the Server" : "$(debug-start) Start the Server",
      command: "outpost.ui.restart",
    },
  ];
  const picked = await window.showQuickPick(items, { placeHolder: "Outpost" });
  if (picked?.command !== undefined) {
    await commands.executeCommand(picked.command);
  }
}

async function setKey(keys: Keys, given: unknown): Promise<void> {
  const provider = typeof given === "string" ? given : await pickProvider(keys);
  if (provider === undefined) {
    return;
  }
  const value = await window.showInputBox({
    title: `API Key of ${provider}`,
    prompt: "It is kept in the editor's secret storage and given to the server when a request is made.",
    password: true,
    ignoreFocusOut: true,
    validateInput: (text) => (text.trim() === "" ? "Please paste the key." : undefined),
  });
  if (value !== undefined) {
    await keys.set(provider, value);
    void window.showInformationMessage(`Outpost: the key of ${provider} is saved.`);
  }
}

async function pickProvider(keys: Keys): Promise<string | undefined> {
  const configured = Object.keys(workspace.getConfiguration("outpost").get<Providers>("providers") ?? {});
  const names = [...new Set([...keys.wanted(), ...configured, ...keys.names(), "openai", "anthropic"])];
  const other = "Another…";
  const picked = await window.showQuickPick(
    [
      ...names.map((label) => ({ label, description: keys.names().includes(label) ? "has a key" : "" })),
      { label: other },
    ],
    { title: "Set API Key", placeHolder: "Of which provider? The name is that of your configuration." },
  );
  return picked?.label === other
    ? (await window.showInputBox({ title: "Set API Key", prompt: "The provider's name in your configuration" }))?.trim()
    : picked?.label;
}

async function deleteKey(keys: Keys): Promise<void> {
  if (keys.names().length === 0) {
    void window.showInformationMessage("Outpost: no keys are saved.");
    return;
  }
  const provider = await window.showQuickPick(keys.names(), {
    title: "Delete API Key",
    placeHolder: "Of which provider?",
  });
  if (provider !== undefined) {
    await keys.delete(provider);
  }
}

/** Move keys out of the settings file, where others may read them, into the secret storage. */
async function moveKeys(keys: Keys): Promise<void> {
  const configuration = workspace.getConfiguration("outpost");
  const { found, cleaned } = strayKeys(configuration.inspect<Providers>("providers")?.globalValue ?? {});
  for (const { provider, value } of found) {
    await keys.set(provider, value);
  }
  if (found.length > 0) {
    await configuration.update("providers", cleaned, true);
    const left = workspace.getConfiguration("outpost").inspect<Providers>("providers")?.globalValue ?? {};
    if (strayKeys(left).found.length > 0) {
      void window.showWarningMessage(
        "Outpost: the key is saved, but still stands in another settings file of yours: remove it there.",
      );
      return;
    }
    void window.showInformationMessage(
      `Outpost: ${plural(found.length, "key")} moved. If others could read your settings, replace it at the service.`,
    );
  }
}

/** Say that keys stand in the settings, with a way out. */
export async function warnOfStrayKeys(): Promise<void> {
  const told = workspace.getConfiguration("outpost").inspect<Providers>("providers")?.globalValue ?? {};
  const { found } = strayKeys(told);
  if (found.length > 0) {
    const names = found.map(({ provider }) => provider).join(", ");
    const answer = await window.showWarningMessage(
      `Outpost: the settings hold a key in clear (${names}). It is not used from there.`,
      "Move to Secret Storage",
    );
    if (answer !== undefined) {
      await commands.executeCommand("outpost.ui.moveKeys");
    }
  }
}
