/**
 * The view of findings: open ones by file or by severity, stale and dismissed ones in groups of their own.
 */

import {
  EventEmitter,
  MarkdownString,
  ThemeColor,
  ThemeIcon,
  TreeItem,
  TreeItemCollapsibleState,
  Uri,
  workspace,
  type TreeDataProvider,
} from "vscode";

import type { Finding, Severity } from "../protocol";
import { oneLine, plural } from "../text";
import {
  byPlace,
  bySeverity,
  groupByFile,
  isFiltering,
  NO_FILTER,
  SEVERITIES,
  type Filter,
  type FindingStore,
} from "./store";

export type Grouping = "file" | "severity";

export type FindingNode =
  | { readonly kind: "file"; readonly uri: string; readonly findings: readonly Finding[] }
  | { readonly kind: "severity"; readonly severity: Severity; readonly findings: readonly Finding[] }
  | { readonly kind: "aside"; readonly status: "stale" | "dismissed"; readonly findings: readonly Finding[] }
  | { readonly kind: "finding"; readonly finding: Finding; readonly showsFile: boolean };

const ICONS: Readonly<Record<Severity, ThemeIcon>> = {
  error: new ThemeIcon("error", new ThemeColor("problemsErrorIcon.foreground")),
  warning: new ThemeIcon("warning", new ThemeColor("problemsWarningIcon.foreground")),
  information: new ThemeIcon("info", new ThemeColor("problemsInfoIcon.foreground")),
  hint: new ThemeIcon("lightbulb"),
};

const PLURALS: Readonly<Record<Severity, string>> = {
  error: "Errors",
  warning: "Warnings",
  information: "Information",
  hint: "Hints",
};

export class FindingsTree implements TreeDataProvider<FindingNode> {
  private readonly changed = new EventEmitter<undefined>();
  readonly onDidChangeTreeData = this.changed.event;
  private filter: Filter = NO_FILTER;

  constructor(
    private readonly store: FindingStore,
    private grouping: Grouping,
  ) {}

  get currentFilter(): Filter {
    return this.filter;
  }

  refresh(): void {
    this.changed.fire(undefined);
  }

  setFilter(filter: Filter): void {
    this.filter = filter;
    this.refresh();
  }

  setGrouping(grouping: Grouping): void {
    this.grouping = grouping;
    this.refresh();
  }

  /** A line above the tree while not everything is shown. */
  message(): string | undefined {
    if (!isFiltering(this.filter)) {
      return undefined;
    }
    const shown = this.store.withStatus("open", this.filter).length;
    const words = this.filter.text === "" ? "" : ` “${this.filter.text}”`;
    return `Filter${words}: ${String(shown)} of ${plural(this.store.withStatus("open").length, "finding")}`;
  }

  getChildren(node?: FindingNode): FindingNode[] {
    if (node === undefined) {
      return this.roots();
    }
    switch (node.kind) {
      case "file":
        return [...node.findings].sort(bySeverity).map((finding) => ({ kind: "finding", finding, showsFile: false }));
      case "severity":
      case "aside":
        return [...node.findings]
          .sort((left, right) => (left.uri < right.uri ? -1 : left.uri > right.uri ? 1 : byPlace(left, right)))
          .map((finding) => ({ kind: "finding", finding, showsFile: true }));
      case "finding":
        return [];
    }
  }

  getTreeItem(node: FindingNode): TreeItem {
    switch (node.kind) {
      case "file":
        return fileItem(node.uri, node.findings);
      case "severity":
        return groupItem(
          PLURALS[node.severity],
          node.findings,
          ICONS[node.severity],
          `severity:${node.severity}`,
          true,
        );
      case "aside": {
        const [label, icon] =
          node.status === "stale" ? (["Stale", "history"] as const) : (["Dismissed", "eye-closed"] as const);
        const item = groupItem(label, node.findings, new ThemeIcon(icon), `aside:${node.status}`, false);
        item.tooltip =
          node.status === "stale"
            ? "The code that these are about was edited since they were found."
            : "These are not shown again until they are restored, or until the code changes.";
        return item;
      }
      case "finding":
        return findingItem(node.finding, node.showsFile);
    }
  }

  private roots(): FindingNode[] {
    const open = this.store.withStatus("open", this.filter);
    const roots: FindingNode[] =
      this.grouping === "file"
        ? groupByFile(open).map(([uri, findings]) => ({ kind: "file", uri, findings }))
        : SEVERITIES.map((severity) => ({
            kind: "severity" as const,
            severity,
            findings: open.filter((finding) => finding.severity === severity),
          })).filter(({ findings }) => findings.length > 0);
    for (const status of ["stale", "dismissed"] as const) {
      const findings = this.store.withStatus(status, this.filter);
      if (findings.length > 0) {
        roots.push({ kind: "aside", status, findings });
      }
    }
    return roots;
  }
}

function fileItem(uri: string, findings: readonly Finding[]): TreeItem {
  const resource = Uri.parse(uri);
  const item = new TreeItem(resource, TreeItemCollapsibleState.Expanded);
  item.id = `file:${uri}`;
  item.description = folderOf(resource);
  item.tooltip = `${workspace.asRelativePath(resource)}: ${plural(findings.length, "finding")}`;
  item.contextValue = "file";
  item.iconPath = ThemeIcon.File;
  return item;
}

function groupItem(
  label: string,
  findings: readonly Finding[],
  icon: ThemeIcon,
  id: string,
  isOpen: boolean,
): TreeItem {
  const item = new TreeItem(label, isOpen ? TreeItemCollapsibleState.Expanded : TreeItemCollapsibleState.Collapsed);
  item.id = id;
  item.description = String(findings.length);
  item.iconPath = icon;
  item.contextValue = id.replace(":", ".");
  return item;
}

function findingItem(finding: Finding, showsFile: boolean): TreeItem {
  const item = new TreeItem(oneLine(finding.title, 200), TreeItemCollapsibleState.None);
  const line = String(finding.range.start.line + 1);
  item.id = `finding:${finding.id}`;
  item.description = [
    showsFile ? `${workspace.asRelativePath(Uri.parse(finding.uri))}:${line}` : `${finding.code} [${line}]`,
    ...(finding.status === "dismissed" && finding.dismissal?.reason !== undefined
      ? [oneLine(finding.dismissal.reason)]
      : []),
  ].join(" · ");
  item.iconPath =
    finding.status === "open"
      ? ICONS[finding.severity]
      : new ThemeIcon(finding.status === "stale" ? "history" : "eye-closed");
  item.tooltip = tooltip(finding);
  item.contextValue = contextOf(finding);
  item.command = { command: "outpost.ui.openFinding", title: "Open", arguments: [finding.id] };
  item.accessibilityInformation = {
    label: `${finding.severity}: ${oneLine(finding.title, 200)}, line ${line}, ${finding.status}`,
  };
  return item;
}

/** What the menus go by. */
export function contextOf(finding: Finding): string {
  const has = finding.status === "open" && finding.suggestion !== undefined ? ".suggestion" : "";
  return `finding.${finding.status}${has}`;
}

/** Model text is shown as text: nothing in it is a link, a picture or a command. */
function tooltip(finding: Finding): MarkdownString {
  const text = new MarkdownString();
  text.appendMarkdown(`**${finding.severity}** `);
  text.appendText(oneLine(finding.title, 300));
  if (finding.detail.trim() !== "") {
    text.appendMarkdown("\n\n");
    text.appendText(finding.detail);
  }
  text.appendMarkdown("\n\n---\n\n");
  text.appendText(
    [
      finding.code,
      `found by ${finding.agent}`,
      ...(finding.confidence === undefined ? [] : [`confidence ${finding.confidence.toFixed(2)}`]),
      ...(finding.inDiff === false ? ["outside the changed lines"] : []),
      ...dismissalText(finding),
    ].join(" · "),
  );
  return text;
}

function dismissalText({ dismissal }: Finding): string[] {
  if (dismissal === undefined) {
    return [];
  }
  const until = dismissal.until === undefined ? "" : ` until ${dismissal.until.slice(0, 10)}`;
  return [
    `dismissed ${dismissal.at.slice(0, 10)}${until}${dismissal.reason === undefined ? "" : `: ${dismissal.reason}`}`,
  ];
}

function folderOf(resource: Uri): string {
  const relative = workspace.asRelativePath(resource);
  const end = relative.lastIndexOf("/");
  return end < 0 ? "" : relative.slice(0, end);
}
