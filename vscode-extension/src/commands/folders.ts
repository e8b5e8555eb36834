/** Which folder or document a command is about. With several folders open, nothing is chosen in silence. */

import { commands, Uri, window, workspace } from "vscode";

/** The URI that a menu passed along: a file's, or a source control's root. */
export function givenUri(argument: unknown): Uri | undefined {
  if (argument instanceof Uri) {
    return argument;
  }
  const root = (argument as { rootUri?: unknown } | undefined)?.rootUri;
  return root instanceof Uri ? root : undefined;
}

/** The folder to work on: the one that was given, the only one, or the one that the person picks. */
export async function pickFolder(argument: unknown, placeHolder: string): Promise<Uri | undefined> {
  const given = givenUri(argument);
  if (given !== undefined) {
    return given;
  }
  const folders = workspace.workspaceFolders ?? [];
  if (folders.length === 0) {
    void window.showInformationMessage("Outpost works on the git repository of a folder: open one first.");
    return undefined;
  }
  return folders.length === 1 ? folders[0]?.uri : (await window.showWorkspaceFolderPick({ placeHolder }))?.uri;
}

/** The document to work on: the one that was given, or the active editor's. */
export function pickDocument(argument: unknown): Uri | undefined {
  const uri = givenUri(argument) ?? window.activeTextEditor?.document.uri;
  if (uri?.scheme !== "file") {
    void window.showInformationMessage("Outpost: open a file of the folder first.");
    return undefined;
  }
  return uri;
}

/** Whether a review may go on in a folder that is not trusted. Asked once a session. */
let isAgreed = false;

export async function mayReview(): Promise<boolean> {
  if (workspace.isTrusted || isAgreed) {
    return true;
  }
  const answer = await window.showWarningMessage(
    "This folder is not trusted. A review reads it, in a worktree of its own, and starts nothing that it names.",
    { modal: true },
    "Review",
    "Manage Trust",
  );
  if (answer === "Manage Trust") {
    await commands.executeCommand("workbench.trust.manage");
  }
  isAgreed = answer === "Review";
  return isAgreed;
}
