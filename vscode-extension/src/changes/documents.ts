/**
 * What runs changed, read once and kept, and the two sides of each change as virtual documents for the editor's own diff
 * view.
 *
 * The server provides such documents, too (scheme `outpost`), for any editor. Here both sides have the file's own path,
 * since the editor takes two different paths for a renamed file.
 */

import { Uri, type TextDocumentContentProvider } from "vscode";

import type { ChangedFile } from "../protocol";

export const CHANGE_SCHEME = "outpost-change";
const KEPT_RUNS = 20;

export type Side = "before" | "after";

/** Reads the changes of a run. */
export type Read = (runId: string) => Promise<readonly ChangedFile[]>;

export class ChangeDocuments implements TextDocumentContentProvider {
  private readonly read = new Map<string, Promise<readonly ChangedFile[]>>();

  constructor(private readonly reader: Read) {}

  /** The changes of a run, which are asked for once and kept until they are forgotten. */
  files(runId: string): Promise<readonly ChangedFile[]> {
    const known = this.read.get(runId);
    if (known !== undefined) {
      return known;
    }
    const reading = this.reader(runId);
    this.read.set(runId, reading);
    reading.catch(() => this.read.delete(runId));
    const [oldest] = this.read.keys();
    if (this.read.size > KEPT_RUNS && oldest !== undefined) {
      this.read.delete(oldest);
    }
    return reading;
  }

  forget(runId: string): void {
    this.read.delete(runId);
  }

  async provideTextDocumentContent(uri: Uri): Promise<string> {
    const place = placeOf(uri);
    if (place === undefined) {
      return "";
    }
    const file = (await this.files(place.runId)).find(({ path }) => path === place.path);
    return file?.[place.side] ?? "";
  }
}

/** The document of one side of a changed file. */
export function changeUri(runId: string, side: Side, path: string): Uri {
  return Uri.from({ scheme: CHANGE_SCHEME, authority: side, path: `/${path}`, query: runId });
}

export function placeOf(uri: Uri): { runId: string; side: Side; path: string } | undefined {
  const { authority: side, query: runId } = uri;
  return uri.scheme === CHANGE_SCHEME && (side === "before" || side === "after") && runId !== ""
    ? { runId, side, path: uri.path.slice(1) }
    : undefined;
}

/** The server's document of what came of a run. */
export function reportUri(runId: string): Uri {
  return Uri.from({ scheme: "outpost", path: `/runs/${runId}/report.md` });
}

/** Whether a file is one that has no text to show. */
export function isBinary(file: ChangedFile): boolean {
  return file.before === undefined && file.after === undefined;
}
