/** Texts to read, such as what a check of the installation found: virtual documents, so that nothing asks to be saved. */

import { EventEmitter, Uri, window, type TextDocumentContentProvider } from "vscode";

export const TEXT_SCHEME = "outpost-text";

export class Texts implements TextDocumentContentProvider {
  private readonly texts = new Map<string, string>();
  private readonly changed = new EventEmitter<Uri>();

  readonly onDidChange = this.changed.event;

  /** Show a text under a name; where one of that name is open, it becomes this one. */
  async show(name: string, text: string): Promise<void> {
    const uri = Uri.from({ scheme: TEXT_SCHEME, path: `/${name}` });
    this.texts.set(uri.path, text);
    this.changed.fire(uri);
    await window.showTextDocument(uri, { preview: true });
  }

  provideTextDocumentContent(uri: Uri): string {
    return this.texts.get(uri.path) ?? "";
  }

  dispose(): void {
    this.changed.dispose();
  }
}
