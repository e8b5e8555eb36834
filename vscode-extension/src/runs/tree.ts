/**
 * The view of runs: each with its agents as a tree, the models that were chosen for them, what they used, and what they
 * changed.
 */

import {
  EventEmitter,
  FileDecoration,
  MarkdownString,
  ThemeColor,
  ThemeIcon,
  TreeItem,
  TreeItemCollapsibleState,
  Uri,
  type FileDecorationProvider,
  type TreeDataProvider,
} from "vscode";

import { isLive, type ChangedFile, type Run, type RunStatus } from "../protocol";
import * as text from "../text";
import { childrenOf, type Agent, type RunStore } from "./store";

export type RunNode =
  | { readonly kind: "run"; readonly id: string }
  | { readonly kind: "agent"; readonly runId: string; readonly agentId: string | undefined }
  | { readonly kind: "changes"; readonly runId: string }
  | { readonly kind: "changed-file"; readonly runId: string; readonly file: ChangedFile }
  | { readonly kind: "note"; readonly runId: string; readonly index: number };

/** Reads what is only asked for when somebody opens a node. */
export interface Details {
  /** Have the run's agents told by its timeline. */
  tellAgents(runId: string): Promise<void>;
  changedFiles(runId: string): Promise<readonly ChangedFile[]>;
}

const STATUS_ICONS: Readonly<Record<RunStatus, readonly [icon: string, color?: string]>> = {
  queued: ["clock"],
  preparing: ["loading~spin"],
  running: ["loading~spin"],
  waiting: ["watch", "list.warningForeground"],
  succeeded: ["pass", "testing.iconPassed"],
  failed: ["error", "testing.iconFailed"],
  cancelled: ["circle-slash"],
  interrupted: ["debug-disconnect", "list.warningForeground"],
};

const FILE_ICONS: Readonly<Record<ChangedFile["status"], string>> = {
  added: "diff-added",
  modified: "diff-modified",
  deleted: "diff-removed",
  renamed: "diff-renamed",
};

export const AGENT_SCHEME = "outpost-agent";

export class RunsTree implements TreeDataProvider<RunNode>, FileDecorationProvider {
  private readonly changed = new EventEmitter<RunNode[] | undefined>();
  private readonly decorated = new EventEmitter<Uri[]>();
  readonly onDidChangeTreeData = this.changed.event;
  readonly onDidChangeFileDecorations = this.decorated.event;
  /** One node for each run, since the editor tells nodes apart by identity. */
  private readonly nodes = new Map<string, RunNode>();
  private readonly telling = new Map<string, Promise<void>>();
  /** How many reads of a run's rows are under way. */
  private readonly reads = new Map<string, number>();
  private readonly held = new Set<string>();

  constructor(
    private readonly store: RunStore,
    private readonly details: Details,
    private readonly now: () => number = Date.now,
  ) {}

  /**
   * Show again what changed of some runs; of the whole list for `undefined`.
   *
   * A run whose rows are being read waits until the editor has them: it would keep the rows that it gets after a change
   * apart from those before, and refuse that run's rows from then on, since it knows them already.
   */
  refresh(ids: readonly string[] | undefined): void {
    const ready = ids?.filter((id) => !this.reads.has(id));
    for (const id of ids ?? []) {
      if (this.reads.has(id)) {
        this.held.add(id);
      }
    }
    if (ready === undefined) {
      this.changed.fire(undefined);
    } else if (ready.length > 0) {
      this.changed.fire(ready.map((id) => this.node(id)));
    }
    const agents = (ids ?? []).flatMap((id) =>
      [...(this.store.get(id)?.agents.values() ?? [])].map((agent) => agentUri(id, agent.id)),
    );
    if (agents.length > 0) {
      this.decorated.fire(agents);
    }
  }

  getParent(node: RunNode): RunNode | undefined {
    switch (node.kind) {
      case "run":
        return undefined;
      case "agent": {
        const entry = this.store.get(node.runId);
        const agent = entry?.agents.get(node.agentId ?? "");
        return node.agentId === undefined || agent === undefined
          ? this.node(node.runId)
          : { kind: "agent", runId: node.runId, agentId: agent.parentId };
      }
      case "changed-file":
        return { kind: "changes", runId: node.runId };
      case "changes":
      case "note":
        return this.node(node.runId);
    }
  }

  async getChildren(node?: RunNode): Promise<RunNode[]> {
    if (node === undefined) {
      return this.store.list().map((entry) => this.node(entry.run.id));
    }
    switch (node.kind) {
      case "run": {
        const entry = this.store.get(node.id);
        if (entry === undefined) {
          return [];
        }
        if (!entry.isTold) {
          await this.read(node.id, () => this.tellAgents(node.id));
        }
        const { run } = entry;
        return [
          { kind: "agent", runId: run.id, agentId: undefined },
          ...(run.changes !== undefined && run.disposition !== "none"
            ? [{ kind: "changes", runId: run.id } as const]
            : []),
          ...run.notes.map((_, index) => ({ kind: "note", runId: run.id, index }) as const),
        ];
      }
      case "agent": {
        const entry = this.store.get(node.runId);
        return entry === undefined
          ? []
          : childrenOf(entry, node.agentId).map((agent) => ({ kind: "agent", runId: node.runId, agentId: agent.id }));
      }
      case "changes":
        return (await this.read(node.runId, () => this.details.changedFiles(node.runId))).map((file) => ({
          kind: "changed-file",
          runId: node.runId,
          file,
        }));
      case "changed-file":
      case "note":
        return [];
    }
  }

  getTreeItem(node: RunNode): TreeItem {
    const runId = node.kind === "run" ? node.id : node.runId;
    const entry = this.store.get(runId);
    if (entry === undefined) {
      return new TreeItem("", TreeItemCollapsibleState.None);
    }
    switch (node.kind) {
      case "run":
        return this.runItem(entry.run);
      case "agent": {
        const agent = entry.agents.get(node.agentId ?? "");
        return agent === undefined
          ? new TreeItem("", TreeItemCollapsibleState.None)
          : agentItem(entry.run, agent, childrenOf(entry, agent.id).length > 0);
      }
      case "changes":
        return changesItem(entry.run);
      case "changed-file":
        return fileItem(entry.run, node.file);
      case "note":
        return noteItem(entry.run, node.index);
    }
  }

  provideFileDecoration(uri: Uri): FileDecoration | undefined {
    if (uri.scheme !== AGENT_SCHEME) {
      return undefined;
    }
    const [runId = "", agentId = ""] = uri.path.slice(1).split("/");
    const route = this.store.get(runId)?.agents.get(agentId)?.route;
    if (route === undefined) {
      return undefined;
    }
    return new FileDecoration(
      Array.from(route.choice).slice(0, 2).join("").toUpperCase(),
      `Route ${text.route(route)}`,
      route.reason === "selected" ? undefined : new ThemeColor("list.warningForeground"),
    );
  }

  private async read<T>(runId: string, work: () => Promise<T>): Promise<T> {
    this.reads.set(runId, (this.reads.get(runId) ?? 0) + 1);
    try {
      return await work();
    } finally {
      // The editor takes rows in before the next turn of the loop.
      setImmediate(() => {
        const left = (this.reads.get(runId) ?? 1) - 1;
        if (left > 0) {
          this.reads.set(runId, left);
          return;
        }
        this.reads.delete(runId);
        if (this.held.delete(runId)) {
          this.refresh([runId]);
        }
      });
    }
  }

  /** The view asks again and again while a run is busy; the server is asked once. */
  private tellAgents(id: string): Promise<void> {
    let telling = this.telling.get(id);
    if (telling === undefined) {
      telling = this.details.tellAgents(id).finally(() => this.telling.delete(id));
      this.telling.set(id, telling);
    }
    return telling;
  }

  node(id: string): RunNode {
    let node = this.nodes.get(id);
    if (node === undefined) {
      node = { kind: "run", id };
      this.nodes.set(id, node);
    }
    return node;
  }

  private runItem(run: Run): TreeItem {
    const live = isLive(run);
    const item = new TreeItem(
      text.oneLine(run.title, 160),
      live ? TreeItemCollapsibleState.Expanded : TreeItemCollapsibleState.Collapsed,
    );
    item.id = `run:${run.id}`;
    item.description = runFacts(run, this.now()).join(" · ");
    item.iconPath = statusIcon(run.status);
    item.tooltip = runTooltip(run, this.now());
    item.contextValue = contextOf(run);
    item.accessibilityInformation = { label: `${run.title}, ${text.status(run)}` };
    return item;
  }
}

function statusIcon(status: RunStatus): ThemeIcon {
  const [icon, color] = STATUS_ICONS[status];
  return color === undefined ? new ThemeIcon(icon) : new ThemeIcon(icon, new ThemeColor(color));
}

export function agentUri(runId: string, agentId: string | undefined): Uri {
  return Uri.from({ scheme: AGENT_SCHEME, path: `/${runId}/${agentId ?? ""}` });
}

/** What the menus go by: `run.live`, or how it ended with what can still be done. */
export function contextOf(run: Run): string {
  return [
    isLive(run) ? "run.live" : "run.ended",
    ...(run.conversation === undefined ? [] : ["conversation"]),
    ...(run.disposition === "none" ? [] : [run.disposition]),
    ...(run.text === undefined ? [] : ["text"]),
  ].join(".");
}

export function runFacts(run: Run, now: number): string[] {
  return [
    ...(run.status === "succeeded" || run.status === "running" ? [] : [text.status(run)]),
    ...(run.findings > 0 ? [text.plural(run.findings, "finding")] : []),
    ...(run.changes !== undefined && run.disposition !== "none"
      ? [`${text.changes(run.changes)} ${run.disposition}`]
      : []),
    ...(run.usage.input + run.usage.output > 0 ? [text.tokens(run.usage)] : []),
    ...(run.cost === undefined ? [] : [text.money(run.cost)]),
    text.elapsed(run, now),
  ].filter((fact) => fact !== "");
}

function runTooltip(run: Run, now: number): MarkdownString {
  const tip = new MarkdownString();
  const line = (label: string, value: string): void => {
    tip.appendMarkdown(`\n\n**${label}** `);
    tip.appendText(value);
  };
  tip.appendText(run.title);
  line("Status", [text.status(run), text.elapsed(run, now)].filter(Boolean).join(", "));
  if (run.error !== undefined) {
    line("Why", `${run.error.code}: ${run.error.message}`);
  }
  line("Agent", run.agent);
  if (run.models.length > 0) {
    line("Models that answered", run.models.join(", "));
  }
  line("Tokens", text.tokensInFull(run.usage));
  if (run.cost !== undefined) {
    line("Cost", text.money(run.cost));
  }
  if (run.rejected > 0) {
    line("Refused", `${text.plural(run.rejected, "finding")}, since the quote or the path does not exist`);
  }
  line("Folder", Uri.parse(run.workspace).fsPath);
  line("Base", run.base.slice(0, 12));
  return tip;
}

function agentItem(run: Run, agent: Agent, hasChildren: boolean): TreeItem {
  const item = new TreeItem(
    text.oneLine(agent.name, 80),
    hasChildren ? TreeItemCollapsibleState.Expanded : TreeItemCollapsibleState.None,
  );
  const works = isLive(run) && agent.status === "started";
  // The editor keeps an item closed that had no children at first; another id opens it with the first one.
  item.id = `agent:${run.id}:${agent.id ?? ""}${hasChildren ? ":open" : ""}`;
  item.resourceUri = agentUri(run.id, agent.id);
  item.iconPath = works
    ? new ThemeIcon("loading~spin")
    : agent.status === "failed"
      ? statusIcon(isLive(run) || run.status === "succeeded" ? "failed" : run.status)
      : new ThemeIcon("hubot");
  item.description = agentFacts(agent, works).join(" · ");
  item.tooltip = agentTooltip(agent);
  item.contextValue = works ? "agent.live" : "agent";
  return item;
}

function agentFacts({ route, model, step, activity, usage }: Agent, works: boolean): string[] {
  return [
    ...(route === undefined ? (model === undefined ? [] : [model]) : [`${route.choice} → ${route.model}`]),
    ...(step > 0 ? [`step ${String(step)}`] : []),
    ...(works && activity !== "" ? [activity] : []),
    ...(usage !== undefined && text.isUsed(usage) ? [text.tokens(usage)] : []),
  ];
}

function agentTooltip(agent: Agent): MarkdownString {
  const tip = new MarkdownString();
  tip.appendText(agent.name);
  if (agent.route !== undefined) {
    tip.appendMarkdown("\n\n**Route** ");
    tip.appendText(`${text.route(agent.route)} (step ${String(agent.route.step)})`);
  }
  if (agent.usage !== undefined) {
    tip.appendMarkdown("\n\n**Tokens** ");
    tip.appendText(text.tokensInFull(agent.usage));
  }
  return tip;
}

function changesItem(run: Run): TreeItem {
  const item = new TreeItem("Changes", TreeItemCollapsibleState.Collapsed);
  item.id = `changes:${run.id}`;
  item.description = [
    ...(run.changes === undefined ? [] : [text.changes(run.changes)]),
    run.disposition === "pending" ? "not applied yet" : run.disposition,
  ].join(" · ");
  item.iconPath = new ThemeIcon("diff-multiple");
  item.contextValue = `changes.${run.disposition}`;
  return item;
}

function fileItem(run: Run, file: ChangedFile): TreeItem {
  const item = new TreeItem(Uri.parse(file.uri), TreeItemCollapsibleState.None);
  item.id = `changed:${run.id}:${file.path}`;
  item.description = file.path.includes("/") ? file.path.slice(0, file.path.lastIndexOf("/")) : "";
  item.iconPath = new ThemeIcon(FILE_ICONS[file.status]);
  item.tooltip = `${file.path}: ${file.status}`;
  item.contextValue = `changed-file.${run.disposition}`;
  item.command = { command: "outpost.ui.showChange", title: "Show Change", arguments: [run.id, file.path] };
  return item;
}

function noteItem(run: Run, index: number): TreeItem {
  const note = run.notes[index] ?? "";
  const item = new TreeItem(text.oneLine(note, 200), TreeItemCollapsibleState.None);
  item.id = `note:${run.id}:${String(index)}`;
  item.iconPath = new ThemeIcon("note");
  const tip = new MarkdownString();
  tip.appendText(note);
  item.tooltip = tip;
  item.contextValue = "note";
  return item;
}
