/** What can be done with findings: go there, apply, fix, dismiss, restore, filter. */

import { commands, Range, TextEditorRevealType, Uri, window, workspace, WorkspaceEdit } from "vscode";

import { isFiltering, NO_FILTER, SEVERITIES } from "../findings/store";
import type { Grouping } from "../findings/tree";
import type { Finding, Range as WireRange } from "../protocol";
import { plural } from "../text";
import { pickFinding, type Context, type Handler } from "./context";
import { givenUri } from "./folders";

export function findingCommands(context: Context): Record<string, Handler> {
  const { session, findings, findingsTree } = context;
  const isOpen = ({ status }: Finding): boolean => status === "open";
  const changeFilter = async (): Promise<void> => {
    await commands.executeCommand("setContext", "outpost.isFiltering", isFiltering(findingsTree.currentFilter));
  };
  const group = async (grouping: Grouping): Promise<void> => {
    findingsTree.setGrouping(grouping);
    await workspace.getConfiguration("outpost").update("findings.group", grouping, true);
  };
  return {
    "outpost.ui.openFinding": async (argument) => {
      const finding = await pickFinding(context, argument, "Which finding?");
      return finding === undefined ? undefined : show(finding);
    },
    "outpost.ui.applySuggestion": async (argument) => {
      const finding = await pickFinding(
        context,
        argument,
        "Whose suggestion?",
        (one) => isOpen(one) && one.suggestion !== undefined,
      );
      return finding === undefined ? undefined : applySuggestion(context, finding);
    },
    "outpost.ui.fix": async (argument) => {
      const finding = await pickFinding(context, argument, "Which finding should an agent fix?", isOpen);
      return finding === undefined ? undefined : context.starter.start("outpost.fix", { findingId: finding.id });
    },
    "outpost.ui.dismiss": async (argument) => {
      const finding = await pickFinding(context, argument, "Which finding should not be shown any more?", isOpen);
      return finding === undefined ? undefined : dismiss(context, finding, undefined);
    },
    "outpost.ui.dismissUntil": async (argument) => {
      const finding = await pickFinding(context, argument, "Which finding should not be shown for a while?", isOpen);
      const until = finding === undefined ? undefined : await pickDate();
      return finding === undefined || until === undefined ? undefined : dismiss(context, finding, until);
    },
    "outpost.ui.restore": async (argument) => {
      const finding = await pickFinding(
        context,
        argument,
        "Which finding should be shown again?",
        (one) => one.status === "dismissed",
      );
      if (finding !== undefined) {
        findings.update((await session.request("outpost.restore", { findingId: finding.id })).finding);
      }
    },
    "outpost.ui.clearFindings": async (argument) => {
      const uri = givenUri(argument) ?? fileOf(argument);
      const whose = uri === undefined ? "every file" : workspace.asRelativePath(uri);
      const answer = await window.showWarningMessage(
        `Forget the findings of ${whose}? A later review may find them again.`,
        { modal: true },
        "Forget",
      );
      if (answer !== undefined) {
        const { cleared } = await session.request("outpost.clear", uri === undefined ? {} : { uri: uri.toString() });
        window.setStatusBarMessage(`Outpost: ${plural(cleared, "finding")} forgotten`, 4000);
        findings.replaceAll((await session.request("outpost.findings", {})).findings);
      }
    },
    "outpost.ui.filterFindings": async () => {
      const text = await window.showInputBox({
        title: "Filter Findings",
        prompt: "Words of the title, detail, kind, agent or path; empty for all",
        value: findingsTree.currentFilter.text,
      });
      if (text !== undefined) {
        findingsTree.setFilter({ ...findingsTree.currentFilter, text: text.trim() });
        await changeFilter();
      }
    },
    "outpost.ui.filterSeverity": async () => {
      const picked = await window.showQuickPick(
        SEVERITIES.map((severity) => ({
          label: severity,
          picked: findingsTree.currentFilter.severities.has(severity),
        })),
        { title: "Filter Findings", placeHolder: "Which severities?", canPickMany: true },
      );
      if (picked !== undefined) {
        const severities = new Set(picked.map(({ label }) => label));
        findingsTree.setFilter({ ...findingsTree.currentFilter, severities });
        await changeFilter();
      }
    },
    "outpost.ui.clearFilter": async () => {
      findingsTree.setFilter(NO_FILTER);
      await changeFilter();
    },
    "outpost.ui.groupByFile": () => group("file"),
    "outpost.ui.groupBySeverity": () => group("severity"),
    "outpost.ui.nextFinding": () => step(context, 1),
    "outpost.ui.previousFinding": () => step(context, -1),
  };
}

function fileOf(argument: unknown): Uri | undefined {
  const uri = (argument as { kind?: unknown; uri?: unknown } | undefined)?.uri;
  return typeof uri === "string" ? Uri.parse(uri) : undefined;
}

export function toRange(range: WireRange): Range {
  return new Range(range.start.line, range.start.character, range.end.line, range.end.character);
}

async function show(finding: Finding): Promise<void> {
  const range = toRange(finding.range);
  const editor = await window.showTextDocument(Uri.parse(finding.uri), { selection: range });
  editor.revealRange(range, TextEditorRevealType.InCenterIfOutsideViewport);
}

/** Put the suggestion in place, if the text that it replaces still stands there. */
async function applySuggestion({ session }: Context, finding: Finding): Promise<void> {
  const document = await workspace.openTextDocument(Uri.parse(finding.uri));
  const { version } = document;
  // The server's edits are of the text as it is now, not of when the view was drawn.
  const { findings } = await session.request("outpost.findings", { uri: finding.uri });
  const now = findings.find(({ id }) => id === finding.id);
  const stands = now !== undefined && sameText(document.getText(toRange(now.range)), now.quote);
  if (now?.suggestion === undefined || now.status !== "open" || !stands || document.version !== version) {
    void window.showWarningMessage("Outpost: the code was edited since, so the suggestion was not applied.");
    return;
  }
  const edit = new WorkspaceEdit();
  for (const { range, newText } of now.suggestion.edits) {
    edit.replace(document.uri, toRange(range), newText);
  }
  if (await workspace.applyEdit(edit)) {
    await window.showTextDocument(document, { selection: toRange(now.range), preview: true });
  }
}

function sameText(text: string, quote: string): boolean {
  const plain = (one: string): string => one.replace(/\r\n?/gu, "\n").trim();
  return plain(text) === plain(quote);
}

async function dismiss({ session, findings }: Context, finding: Finding, until: string | undefined): Promise<void> {
  const reason = await window.showInputBox({
    title: `Dismiss: ${finding.title}`,
    prompt: "Why? Reviewers are told. It may be left empty.",
  });
  if (reason === undefined) {
    return;
  }
  const params = {
    findingId: finding.id,
    ...(reason.trim() === "" ? {} : { reason: reason.trim() }),
    ...(until === undefined ? {} : { until }),
  };
  findings.update((await session.request("outpost.dismiss", params)).finding);
}

const DAY_MS = 24 * 3600 * 1000;

async function pickDate(): Promise<string | undefined> {
  const picked = await window.showQuickPick(
    [
      { label: "For a day", days: 1 },
      { label: "For a week", days: 7 },
      { label: "For a month", days: 30 },
      { label: "For a year", days: 365 },
    ],
    { placeHolder: "For how long?" },
  );
  return picked === undefined ? undefined : new Date(Date.now() + picked.days * DAY_MS).toISOString();
}

async function step({ findings }: Context, direction: 1 | -1): Promise<void> {
  const editor = window.activeTextEditor;
  const here = findings
    .withStatus("open")
    .filter(({ uri }) => uri === editor?.document.uri.toString())
    .sort(
      (left, right) =>
        left.range.start.line - right.range.start.line || left.range.start.character - right.range.start.character,
    );
  if (editor === undefined || here.length === 0) {
    window.setStatusBarMessage("Outpost: there are no findings in this file", 4000);
    return;
  }
  const at = editor.selection.start;
  const isBeyond = ({ range }: Finding): boolean => {
    const start = toRange(range).start;
    return direction === 1 ? start.isAfter(at) : start.isBefore(at);
  };
  const next = direction === 1 ? (here.find(isBeyond) ?? here[0]) : (here.findLast(isBeyond) ?? here.at(-1));
  if (next !== undefined) {
    await show(next);
  }
}
