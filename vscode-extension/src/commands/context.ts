/** What commands work with, and how they are registered: a failure is told to the person once, in the server's words. */

import { commands, window, workspace, type Disposable } from "vscode";

import type { ChangeDocuments } from "../changes/documents";
import type { FindingStore } from "../findings/store";
import type { FindingNode, FindingsTree } from "../findings/tree";
import type { Finding, Run } from "../protocol";
import type { RunStore } from "../runs/store";
import type { RunNode } from "../runs/tree";
import { failureText, isCancelled, NoServerError, type Session } from "../server/session";
import type { Starter } from "../starter";
import * as text from "../text";

export interface Context {
  readonly session: Session;
  readonly starter: Starter;
  readonly findings: FindingStore;
  readonly findingsTree: FindingsTree;
  readonly runs: RunStore;
  readonly changes: ChangeDocuments;
  /** Apply an edit of the server with the editor's preview while this runs. */
  withPreview<T>(label: string, work: () => Promise<T>): Promise<T>;
  /** Collect the URIs that the server's edits write while this runs. */
  collectingEdits<T>(work: () => Promise<T>): Promise<{ result: T; uris: readonly string[] }>;
}

export type Handler = (argument?: unknown, ...more: unknown[]) => Promise<unknown> | undefined;

export function register(handlers: Readonly<Record<string, Handler>>): Disposable[] {
  return Object.entries(handlers).map(([id, handler]) =>
    commands.registerCommand(id, async (...given: unknown[]) => {
      try {
        return await handler(...given);
      } catch (error) {
        if (!isCancelled(error) && !(error instanceof NoServerError)) {
          void window.showErrorMessage(`Outpost: ${failureText(error)}`);
        }
        return undefined;
      }
    }),
  );
}

/** Which runs a command is for. */
export interface Wanted {
  /** The question when there are several. */
  readonly ask: string;
  /** What is said when there is none. */
  readonly none: string;
  readonly fits?: (run: Run) => boolean;
  /** What is said of one that was named and does not fit; without it, that is the server's to judge. */
  readonly misfit?: (run: Run) => string;
}

/** The run that a command means: its id, a node of the view, or one that the person picks. */
export async function pickRun({ runs }: Context, argument: unknown, wanted: Wanted): Promise<Run | undefined> {
  const fits = wanted.fits ?? ((): boolean => true);
  const id = typeof argument === "string" ? argument : runIdOf(argument);
  if (id !== undefined) {
    const named = runs.get(id)?.run;
    const why =
      named === undefined ? "that run is not kept any more." : fits(named) ? undefined : wanted.misfit?.(named);
    if (why !== undefined) {
      void window.showInformationMessage(`Outpost: ${why}`);
    }
    return why === undefined ? named : undefined;
  }
  const choices = runs
    .list()
    .map(({ run }) => run)
    .filter(fits);
  if (choices.length <= 1) {
    if (choices.length === 0) {
      void window.showInformationMessage(`Outpost: ${wanted.none}`);
    }
    return choices[0];
  }
  const picked = await window.showQuickPick(
    choices.map((run) => ({
      label: text.oneLine(run.title),
      description: [text.status(run), run.agent, text.elapsed(run, Date.now())].join(" · "),
      run,
    })),
    { placeHolder: wanted.ask },
  );
  return picked?.run;
}

function runIdOf(argument: unknown): string | undefined {
  const node = argument as RunNode | undefined;
  if (typeof node !== "object" || !("kind" in node)) {
    return undefined;
  }
  return node.kind === "run" ? node.id : node.runId;
}

export function runNode(argument: unknown): RunNode | undefined {
  return typeof argument === "object" && argument !== null && "kind" in argument ? (argument as RunNode) : undefined;
}

/** The finding that a command means: its id, a node of the view, or one of the active document that the person picks. */
export async function pickFinding(
  { findings }: Context,
  argument: unknown,
  placeHolder: string,
  wanted: (finding: Finding) => boolean = () => true,
): Promise<Finding | undefined> {
  const id = typeof argument === "string" ? argument : findingIdOf(argument);
  if (id !== undefined) {
    return findings.get(id);
  }
  const here = window.activeTextEditor?.document.uri.toString();
  const all = findings.all().filter(wanted);
  const local = all.filter((finding) => finding.uri === here);
  const choices = local.length > 0 ? local : all;
  if (choices.length === 0) {
    void window.showInformationMessage("Outpost: there is no such finding.");
    return undefined;
  }
  const picked = await window.showQuickPick(
    choices.map((finding) => ({
      label: text.oneLine(finding.title),
      description: `${finding.severity} · ${workspace.asRelativePath(finding.uri)}:${String(finding.range.start.line + 1)}`,
      finding,
    })),
    { placeHolder, matchOnDescription: true },
  );
  return picked?.finding;
}

function findingIdOf(argument: unknown): string | undefined {
  const node = argument as FindingNode | { readonly findingId: string } | undefined;
  if (typeof node !== "object") {
    return undefined;
  }
  if ("findingId" in node) {
    return node.findingId;
  }
  return "kind" in node && node.kind === "finding" ? node.finding.id : undefined;
}
