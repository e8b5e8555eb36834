/** Reviews of every scope, and agents on a brief. */

import { window, type Uri } from "vscode";

import type { ReviewParams, ScopeKind } from "../protocol";
import type { Context, Handler } from "./context";
import { mayReview, pickDocument, pickFolder } from "./folders";

type Extra = Pick<ReviewParams, "agent" | "brief">;

export function reviewCommands(context: Context): Record<string, Handler> {
  const review = async (params: ReviewParams): Promise<void> => {
    if (await mayReview()) {
      await context.starter.start("outpost.review", params);
    }
  };
  const ofFolder =
    (scope: ScopeKind): Handler =>
    async (argument) => {
      const params = await folderScope(scope, argument);
      return params === undefined ? undefined : review(params);
    };
  return {
    "outpost.ui.reviewUncommitted": ofFolder("uncommitted"),
    "outpost.ui.reviewStaged": ofFolder("staged"),
    "outpost.ui.reviewUnstaged": ofFolder("unstaged"),
    "outpost.ui.reviewBranch": ofFolder("branch"),
    "outpost.ui.reviewCommit": ofFolder("commit"),
    "outpost.ui.reviewWorkspace": ofFolder("workspace"),
    "outpost.ui.reviewFile": async (argument) => {
      const uri = pickDocument(argument);
      return uri === undefined ? undefined : review(fileScope(uri));
    },
    "outpost.ui.reviewSelection": async () => {
      const params = selectionScope();
      return params === undefined ? undefined : review(params);
    },
    "outpost.ui.review": async () => {
      const params = await anyScope();
      const extra = params === undefined ? undefined : await instructions(context);
      return params === undefined || extra === undefined ? undefined : review({ ...params, ...extra });
    },
    "outpost.ui.coordinate": async (argument) => {
      const uri = await pickFolder(argument, "Which folder is it about?");
      const brief = uri === undefined ? undefined : await ask("What should the coordinator do?");
      return uri === undefined || brief === undefined
        ? undefined
        : context.starter.start("outpost.coordinate", { brief, uri: uri.toString() });
    },
    "outpost.ui.dispatch": async (argument) => {
      const uri = await pickFolder(argument, "Which folder is it about?");
      const agent = uri === undefined ? undefined : await pickAgent(context);
      const brief = agent === undefined ? undefined : await ask(`What should ${agent} do?`);
      return uri === undefined || agent === undefined || brief === undefined
        ? undefined
        : context.starter.start("outpost.dispatch", { agent, brief, uri: uri.toString() });
    },
  };
}

async function folderScope(scope: ScopeKind, argument: unknown): Promise<ReviewParams | undefined> {
  const uri = await pickFolder(argument, "Which folder should be reviewed?");
  if (uri === undefined) {
    return undefined;
  }
  const params = { scope, uri: uri.toString() };
  switch (scope) {
    case "branch": {
      const base = await window.showInputBox({
        title: "Review the Branch",
        prompt: "Compare with which revision? Leave it empty for the default branch.",
        placeHolder: "origin/HEAD, else main, else master",
      });
      return base === undefined ? undefined : { ...params, ...(base.trim() === "" ? {} : { base: base.trim() }) };
    }
    case "commit": {
      const revision = await ask("Which commit?", "HEAD");
      return revision === undefined ? undefined : { ...params, revision };
    }
    case "workspace": {
      const answer = await window.showWarningMessage(
        "A review of the whole folder reads every file of it, and with a model from a paid service it costs accordingly.",
        { modal: true },
        "Review",
      );
      return answer === undefined ? undefined : params;
    }
    default:
      return params;
  }
}

function fileScope(uri: Uri): ReviewParams {
  return { scope: "file", uri: uri.toString() };
}

function selectionScope(): ReviewParams | undefined {
  const uri = pickDocument(undefined);
  const selection = window.activeTextEditor?.selection;
  if (uri === undefined || selection === undefined) {
    return undefined;
  }
  if (selection.isEmpty) {
    void window.showInformationMessage("Outpost: select the code to be reviewed first.");
    return undefined;
  }
  const { start, end } = selection;
  const range = {
    start: { line: start.line, character: start.character },
    end: { line: end.line, character: end.character },
  };
  return { scope: "selection", uri: uri.toString(), range };
}

const SCOPES: readonly { readonly label: string; readonly description: string; readonly scope: ScopeKind }[] = [
  { label: "Uncommitted work", description: "staged, unstaged, untracked and unsaved", scope: "uncommitted" },
  { label: "Staged changes", description: "as they stand in the index", scope: "staged" },
  { label: "Unstaged changes", description: "the working tree against the index", scope: "unstaged" },
  { label: "This branch", description: "against where it left its base", scope: "branch" },
  { label: "A commit", description: "what one commit changed", scope: "commit" },
  { label: "This file", description: "all of it", scope: "file" },
  { label: "The selection", description: "what is selected in the editor", scope: "selection" },
  { label: "The whole folder", description: "every file", scope: "workspace" },
];

async function anyScope(): Promise<ReviewParams | undefined> {
  const picked = await window.showQuickPick(SCOPES, { title: "Review", placeHolder: "What should be reviewed?" });
  if (picked === undefined) {
    return undefined;
  }
  switch (picked.scope) {
    case "file": {
      const uri = pickDocument(undefined);
      return uri === undefined ? undefined : fileScope(uri);
    }
    case "selection":
      return selectionScope();
    default:
      return folderScope(picked.scope, undefined);
  }
}

async function instructions(context: Context): Promise<Extra | undefined> {
  const agent = await pickAgent(context, "The configured reviewer");
  if (agent === undefined) {
    return undefined;
  }
  const brief = await window.showInputBox({
    title: "Review",
    prompt: "What should be looked at especially? Leave it empty for nothing special.",
  });
  return brief === undefined
    ? undefined
    : { ...(agent === "" ? {} : { agent }), ...(brief.trim() === "" ? {} : { brief: brief.trim() }) };
}

/** The name of an agent; `""` for the default one, where there is such a choice. */
async function pickAgent({ session }: Context, fallback?: string): Promise<string | undefined> {
  const { agents } = await session.request("outpost.agents", {});
  const picked = await window.showQuickPick(
    [
      ...(fallback === undefined ? [] : [{ label: fallback, description: "", detail: "", name: "" }]),
      ...agents.map(({ name, model, routing, description }) => ({
        label: name,
        description: routing === undefined ? model : `${model} · routing ${routing}`,
        detail: description,
        name,
      })),
    ],
    { placeHolder: "Which agent?" },
  );
  return picked?.name;
}

async function ask(prompt: string, value = ""): Promise<string | undefined> {
  const answer = await window.showInputBox({
    prompt,
    value,
    ignoreFocusOut: true,
    validateInput: (text) => (text.trim() === "" ? "Please write something." : undefined),
  });
  return answer?.trim();
}
