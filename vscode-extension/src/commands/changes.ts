/** What a run changed: look at it, apply all or parts of it, give it up, bring it back. */

import { commands, QuickPickItemKind, Uri, window, workspace, type QuickPickItem } from "vscode";

import { changeUri, isBinary } from "../changes/documents";
import { hunkText } from "../changes/hunks";
import { isLive, type ApplyResult, type ChangedFile, type Run } from "../protocol";
import { oneLine, plural } from "../text";
import { pickRun, runNode, type Context, type Handler, type Wanted } from "./context";

interface Part {
  readonly paths?: readonly string[];
  readonly hunks?: readonly string[];
}

interface How {
  readonly preview?: boolean;
  readonly save?: boolean;
}

const hasChanges = ({ disposition }: Run): boolean => disposition !== "none";
const isPending = ({ disposition }: Run): boolean => disposition === "pending";

/** What there is to say of changes that are not what a command is for. */
function whatBecame(run: Run): string {
  if (isLive(run)) {
    return "that run has not ended yet.";
  }
  return {
    none: "that run changed nothing.",
    pending: "the changes of that run still wait.",
    applied: "the changes of that run are applied already.",
    discarded: "the changes of that run were given up; Reopen brings them back.",
  }[run.disposition];
}

const CHANGED: Wanted = {
  ask: "Whose changes?",
  none: "no run has changed anything.",
  fits: hasChanges,
  misfit: whatBecame,
};
const PENDING: Wanted = {
  ask: "Whose changes should be applied?",
  none: "there is nothing to apply: no run has changes that wait.",
  fits: isPending,
  misfit: whatBecame,
};
const SETTLED: Wanted = {
  ask: "Whose changes should be brought back?",
  none: "there is nothing to reopen: no changes were applied or given up.",
  fits: (run) => hasChanges(run) && !isPending(run),
};

export function changeCommands(context: Context): Record<string, Handler> {
  const applying =
    (how: How): Handler =>
    async (argument) => {
      const run = await pickRun(context, argument, PENDING);
      const node = runNode(argument);
      const part: Part = node?.kind === "changed-file" ? { paths: [node.file.path] } : {};
      return run === undefined ? undefined : apply(context, run, part, how);
    };
  return {
    "outpost.ui.showChanges": async (argument) => {
      const run = await pickRun(context, argument, CHANGED);
      return run === undefined ? undefined : showAll(context, run);
    },
    "outpost.ui.showChange": async (argument, path) => {
      const run = await pickRun(context, argument, CHANGED);
      const node = runNode(argument);
      const wanted = node?.kind === "changed-file" ? node.file.path : path;
      const file =
        run === undefined ? undefined : (await context.changes.files(run.id)).find((one) => one.path === wanted);
      return run === undefined || file === undefined ? undefined : showOne(run, file);
    },
    "outpost.ui.apply": applying({}),
    "outpost.ui.applyPreview": applying({ preview: true }),
    "outpost.ui.applySave": applying({ save: true }),
    "outpost.ui.applyHunks": async (argument) => {
      const run = await pickRun(context, argument, PENDING);
      const node = runNode(argument);
      const hunks =
        run === undefined
          ? undefined
          : await pickHunks(context, run, node?.kind === "changed-file" ? node.file.path : undefined);
      return run === undefined || hunks === undefined || hunks.length === 0
        ? undefined
        : apply(context, run, { hunks }, {});
    },
    "outpost.ui.discard": async (argument) => {
      const run = await pickRun(context, argument, {
        ...PENDING,
        ask: "Whose changes should be given up?",
        none: "there is nothing to discard: no run has changes that wait.",
      });
      if (run === undefined) {
        return;
      }
      const answer = await window.showWarningMessage(
        `Give up the changes of “${oneLine(run.title, 80)}”? They can be reopened for some days.`,
        { modal: true },
        "Discard",
      );
      if (answer !== undefined) {
        const { discarded } = await context.session.request("outpost.discard", { runId: run.id });
        if (!discarded) {
          void window.showInformationMessage("Outpost: there was nothing to discard.");
        }
      }
    },
    "outpost.ui.reopen": async (argument) => {
      const run = await pickRun(context, argument, SETTLED);
      if (run !== undefined) {
        context.changes.forget(run.id);
        context.runs.upsert((await context.session.request("outpost.reopen", { runId: run.id })).run);
      }
    },
  };
}

async function showAll({ changes }: Context, run: Run): Promise<void> {
  const files = await changes.files(run.id);
  const [only] = files;
  if (only === undefined) {
    void window.showInformationMessage("Outpost: that run changed nothing.");
  } else if (files.length === 1) {
    await showOne(run, only);
  } else {
    const resources = files.map((file) => [
      Uri.parse(file.uri),
      file.status === "added" ? undefined : changeUri(run.id, "before", file.path),
      file.status === "deleted" ? undefined : changeUri(run.id, "after", file.path),
    ]);
    await commands.executeCommand("vscode.changes", `Changes of ${oneLine(run.title, 60)}`, resources);
  }
}

async function showOne(run: Run, file: ChangedFile): Promise<void> {
  if (isBinary(file)) {
    void window.showInformationMessage(`Outpost: ${file.path} is not a text; it was ${file.status}.`);
    return;
  }
  const [before, after] = [changeUri(run.id, "before", file.path), changeUri(run.id, "after", file.path)];
  await commands.executeCommand("vscode.diff", before, after, `${file.path} (${oneLine(run.title, 40)})`, {
    preview: true,
  });
}

async function pickHunks({ changes }: Context, run: Run, path: string | undefined): Promise<string[] | undefined> {
  const files = (await changes.files(run.id)).filter((file) => path === undefined || file.path === path);
  const items = files.flatMap((file): (QuickPickItem & { id?: string })[] => [
    { label: file.status, kind: QuickPickItemKind.Separator },
    ...file.hunks.map((hunk) => {
      const { place, line } = hunkText(file, hunk);
      return { label: `${file.path}: ${place}`, description: oneLine(line, 80), picked: true, id: hunk.id };
    }),
  ]);
  const picked = await window.showQuickPick(items, {
    title: `Apply Parts of ${oneLine(run.title, 60)}`,
    placeHolder: "Which parts should be applied?",
    canPickMany: true,
    matchOnDescription: true,
  });
  return picked?.flatMap(({ id }) => (id === undefined ? [] : [id]));
}

async function apply(context: Context, run: Run, part: Part, how: How): Promise<void> {
  const request = (): Promise<ApplyResult> => context.session.request("outpost.apply", { runId: run.id, ...part });
  const { result, uris } = await context.collectingEdits(() =>
    how.preview === true ? context.withPreview(`Changes of ${oneLine(run.title, 60)}`, request) : request(),
  );
  context.changes.forget(run.id);
  if (result.conflicts.length > 0) {
    if (how.preview !== true || result.conflicts.some(({ path }) => path !== "")) {
      await tellConflicts(run, result);
    }
    return;
  }
  if (how.save === true && result.applied) {
    await save(uris);
  }
  if (result.applied) {
    window.setStatusBarMessage(`Outpost: applied to ${plural(result.files.length, "file")}`, 6000);
  } else if (result.needsOwnAccept.length === 0) {
    void window.showInformationMessage("Outpost: nothing was applied; the changes stay as they are.");
  }
  await offerOwnAccept(context, run, result, how);
}

async function tellConflicts(run: Run, { conflicts }: ApplyResult): Promise<void> {
  const list = conflicts.map(({ path, reason }) => (path === "" ? reason : `${path}: ${reason}`)).join("; ");
  const answer = await window.showErrorMessage(`Outpost: ${oneLine(list, 600)}`, "Show Changes");
  if (answer !== undefined) {
    await commands.executeCommand("outpost.ui.showChanges", run.id);
  }
}

/** Files that make programs act are applied by name only, after the person saw which they are. */
async function offerOwnAccept(context: Context, run: Run, { needsOwnAccept }: ApplyResult, how: How): Promise<void> {
  if (needsOwnAccept.length === 0) {
    return;
  }
  const answer = await window.showWarningMessage(
    "These files make editors, shells or build services act, so they were not applied with the others.",
    { modal: true, detail: needsOwnAccept.join("\n") },
    "Show Changes",
    "Apply Them Too",
  );
  if (answer === "Apply Them Too") {
    await apply(context, run, { paths: needsOwnAccept }, how);
  } else if (answer === "Show Changes") {
    await commands.executeCommand("outpost.ui.showChanges", run.id);
  }
}

async function save(uris: readonly string[]): Promise<void> {
  const wanted = new Set(uris.map((uri) => Uri.parse(uri).toString()));
  for (const document of workspace.textDocuments) {
    if (document.isDirty && wanted.has(document.uri.toString())) {
      await document.save();
    }
  }
}
