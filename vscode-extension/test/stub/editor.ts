/**
 * A stand-in for the editor's interface: its value classes, and a window whose dialogs are answered by a list.
 *
 * What is shown and asked is recorded. A dialog that no answer was prepared for is turned away, as by a person who
 * presses Escape.
 */

type Listener<T> = (value: T) => unknown;

export class EventEmitter<T> {
  private readonly listeners = new Set<Listener<T>>();
  readonly event = (listener: Listener<T>): Disposable => {
    this.listeners.add(listener);
    return new Disposable(() => this.listeners.delete(listener));
  };
  fire(value: T): void {
    for (const listener of this.listeners) {
      listener(value);
    }
  }
  dispose(): void {
    this.listeners.clear();
  }
}

export class Disposable {
  constructor(readonly dispose: () => unknown) {}
  static from(...all: { dispose(): unknown }[]): Disposable {
    return new Disposable(() => {
      all.forEach((one) => one.dispose());
    });
  }
}

interface Parts {
  scheme: string;
  authority?: string;
  path: string;
  query?: string;
}

export class Uri {
  private constructor(
    readonly scheme: string,
    readonly authority: string,
    readonly path: string,
    readonly query: string,
  ) {}
  static from({ scheme, authority = "", path, query = "" }: Parts): Uri {
    return new Uri(scheme, authority, path, query);
  }
  static file(path: string): Uri {
    return new Uri("file", "", path, "");
  }
  static parse(text: string): Uri {
    const url = new URL(text);
    return new Uri(url.protocol.slice(0, -1), url.host, decodeURIComponent(url.pathname), url.search.slice(1));
  }
  static joinPath(uri: Uri, ...parts: string[]): Uri {
    return new Uri(uri.scheme, uri.authority, [uri.path, ...parts].join("/"), uri.query);
  }
  get fsPath(): string {
    return this.path;
  }
  toString(): string {
    const path = this.path.split("/").map(encodeURIComponent).join("/");
    return `${this.scheme}://${this.authority}${path}${this.query === "" ? "" : `?${this.query}`}`;
  }
}

export class Position {
  constructor(
    readonly line: number,
    readonly character: number,
  ) {}
  isAfter(other: Position): boolean {
    return this.line > other.line || (this.line === other.line && this.character > other.character);
  }
  isBefore(other: Position): boolean {
    return other.isAfter(this);
  }
}

export class Range {
  readonly start: Position;
  readonly end: Position;
  constructor(startLine: number, startCharacter: number, endLine: number, endCharacter: number) {
    this.start = new Position(startLine, startCharacter);
    this.end = new Position(endLine, endCharacter);
  }
}

export class TreeItem {
  id?: string;
  label?: string;
  resourceUri?: Uri;
  description?: string;
  tooltip?: unknown;
  iconPath?: unknown;
  contextValue?: string;
  command?: { command: string; arguments?: unknown[] };
  constructor(
    what: string | Uri,
    readonly collapsibleState: number,
  ) {
    if (what instanceof Uri) {
      this.resourceUri = what;
    } else {
      this.label = what;
    }
  }
}

export class ThemeIcon {
  static readonly File = new ThemeIcon("file");
  constructor(
    readonly id: string,
    readonly color?: ThemeColor,
  ) {}
}

export class ThemeColor {
  constructor(readonly id: string) {}
}

export class FileDecoration {
  constructor(
    readonly badge?: string,
    readonly tooltip?: string,
    readonly color?: ThemeColor,
  ) {}
}

export class MarkdownString {
  value = "";
  /** What was given as text only, which the editor escapes. */
  readonly texts: string[] = [];
  appendMarkdown(text: string): this {
    this.value += text;
    return this;
  }
  appendText(text: string): this {
    this.texts.push(text);
    this.value += text;
    return this;
  }
}

export class WorkspaceEdit {
  readonly replaced: { uri: Uri; range: Range; text: string }[] = [];
  replace(uri: Uri, range: Range, text: string): void {
    this.replaced.push({ uri, range, text });
  }
}

export class CallHierarchyItem {}
export class CodeAction {}
export class CodeLens {}
export class CompletionItem {}
export class Diagnostic {}
export class DocumentLink {}
export class InlayHint {}
export class SymbolInformation {}
export class TypeHierarchyItem {}
export class CancellationError extends Error {}

export const TreeItemCollapsibleState = { None: 0, Collapsed: 1, Expanded: 2 };
export const ProgressLocation = { SourceControl: 1, Window: 10, Notification: 15 };
export const StatusBarAlignment = { Left: 1, Right: 2 };
export const LanguageStatusSeverity = { Information: 0, Warning: 1, Error: 2 };
export const QuickPickItemKind = { Separator: -1, Default: 0 };
export const TextEditorRevealType = { InCenterIfOutsideViewport: 2 };
export const ViewColumn = { Active: -1 };
export const version = "1.100.0";

export interface Dialog {
  readonly kind: "info" | "warning" | "error" | "input" | "pick" | "folder";
  readonly text: string;
  readonly choices: readonly string[];
}

interface Options {
  readonly title?: string;
  readonly prompt?: string;
  readonly placeHolder?: string;
  readonly canPickMany?: boolean;
}

/** Save a document, as a person does. */
export function save(uri: Uri): void {
  saved.fire({ uri });
}

/** What happened, and what is to happen. */
export const stage = {
  dialogs: [] as Dialog[],
  /** Values, or functions of the dialog. */
  answers: [] as unknown[],
  executed: [] as unknown[][],
  registered: new Map<string, (...given: unknown[]) => unknown>(),
  settings: {} as Record<string, unknown>,
  layers: {} as Record<string, { globalValue?: unknown; workspaceValue?: unknown; workspaceFolderValue?: unknown }>,
  applied: [] as WorkspaceEdit[],
  progress: [] as { options: unknown; messages: string[]; isDone: boolean; cancel(): void }[],
  statusMessages: [] as string[],
  shown: [] as unknown[],
  reset(): void {
    this.dialogs = [];
    this.answers = [];
    this.executed = [];
    this.registered.clear();
    this.settings = {};
    this.layers = {};
    this.applied = [];
    this.progress = [];
    this.statusMessages = [];
    this.shown = [];
    workspace.workspaceFolders = undefined;
    workspace.textDocuments = [];
    workspace.isTrusted = true;
    window.activeTextEditor = undefined;
  },
};

function ask(dialog: Dialog): Promise<unknown> {
  stage.dialogs.push(dialog);
  const answer = stage.answers.shift();
  return Promise.resolve(typeof answer === "function" ? (answer as (dialog: Dialog) => unknown)(dialog) : answer);
}

function message(kind: "info" | "warning" | "error"): (text: string, ...rest: unknown[]) => Promise<unknown> {
  return (text, ...rest) => ask({ kind, text, choices: rest.filter((one): one is string => typeof one === "string") });
}

interface TabNews {
  readonly opened: readonly { readonly input?: unknown }[];
  readonly changed: readonly { readonly input?: unknown }[];
}

export const tabs = new EventEmitter<TabNews>();

interface PickItem {
  readonly label: string;
}

export const window = {
  activeTextEditor: undefined as unknown,
  showInformationMessage: message("info"),
  showWarningMessage: message("warning"),
  showErrorMessage: message("error"),
  showInputBox: (options: Options) => ask({ kind: "input", text: options.prompt ?? "", choices: [] }),
  /** Answered by a label, by a list of labels, or by nothing. */
  showQuickPick: async (items: readonly (string | PickItem)[], options: Options) => {
    const label = (item: string | PickItem): string => (typeof item === "string" ? item : item.label);
    const answer = await ask({ kind: "pick", text: options.placeHolder ?? "", choices: items.map(label) });
    return answer !== undefined && (options.canPickMany === true || Array.isArray(answer))
      ? items.filter((item) => [answer].flat().includes(label(item)))
      : items.find((item) => label(item) === answer);
  },
  showWorkspaceFolderPick: async (options: Options) => {
    const answer = await ask({
      kind: "folder",
      text: options.placeHolder ?? "",
      choices: (workspace.workspaceFolders ?? []).map(({ name }) => name),
    });
    return workspace.workspaceFolders?.find(({ name }) => name === answer);
  },
  showTextDocument: (...shown: unknown[]) => {
    stage.shown.push(shown);
    return Promise.resolve({ revealRange: () => undefined });
  },
  setStatusBarMessage: (text: string) => {
    stage.statusMessages.push(text);
    return new Disposable(() => undefined);
  },
  withProgress: async (options: unknown, work: (progress: unknown, token: unknown) => Promise<unknown>) => {
    const cancelled = new EventEmitter<undefined>();
    const messages: string[] = [];
    const entry = {
      options,
      messages,
      isDone: false,
      cancel: () => {
        cancelled.fire(undefined);
      },
    };
    stage.progress.push(entry);
    const progress = { report: ({ message: text }: { message: string }) => messages.push(text) };
    try {
      return await work(progress, { isCancellationRequested: false, onCancellationRequested: cancelled.event });
    } finally {
      entry.isDone = true;
    }
  },
  createOutputChannel: () => ({
    append: () => undefined,
    appendLine: () => undefined,
    info: () => undefined,
    warn: () => undefined,
    error: () => undefined,
    show: () => undefined,
    dispose: () => undefined,
    logLevel: 3,
    onDidChangeLogLevel: new EventEmitter<number>().event,
  }),
  createStatusBarItem: () => ({ text: "", show: () => undefined, dispose: () => undefined }) as Record<string, unknown>,
  createTreeView: () =>
    ({ visible: true, dispose: () => undefined, onDidChangeVisibility: new EventEmitter<unknown>().event }) as Record<
      string,
      unknown
    >,
  createWebviewPanel: () => ({}),
  tabGroups: { onDidChangeTabs: tabs.event },
  registerFileDecorationProvider: () => new Disposable(() => undefined),
  registerWebviewPanelSerializer: () => new Disposable(() => undefined),
};

const saved = new EventEmitter<{ uri: Uri }>();
const configured = new EventEmitter<{ affectsConfiguration(name: string): boolean }>();

export const workspace = {
  isTrusted: true,
  workspaceFolders: undefined as { uri: Uri; name: string; index: number }[] | undefined,
  textDocuments: [] as unknown[],
  asRelativePath: (what: string | Uri) =>
    (typeof what === "string" ? Uri.parse(what) : what).path.split("/").slice(3).join("/"),
  getConfiguration: (section: string) => ({
    get: (key: string) => stage.settings[`${section}.${key}`],
    inspect: (key: string) => stage.layers[`${section}.${key}`],
    update: (key: string, value: unknown) => {
      stage.settings[`${section}.${key}`] = value;
      return Promise.resolve();
    },
  }),
  applyEdit: (edit: WorkspaceEdit) => {
    stage.applied.push(edit);
    return Promise.resolve(true);
  },
  getWorkspaceFolder: () => workspace.workspaceFolders?.[0],
  onDidSaveTextDocument: saved.event,
  openTextDocument: (what: unknown) => Promise.resolve(what),
  registerTextDocumentContentProvider: () => new Disposable(() => undefined),
  onDidChangeConfiguration: configured.event,
  onDidGrantWorkspaceTrust: new EventEmitter<undefined>().event,
  onDidChangeWorkspaceFolders: new EventEmitter<undefined>().event,
};

export const commands = {
  registerCommand: (id: string, work: (...given: unknown[]) => unknown) => {
    stage.registered.set(id, work);
    return new Disposable(() => stage.registered.delete(id));
  },
  executeCommand: (...given: unknown[]) => {
    stage.executed.push(given);
    return Promise.resolve(undefined);
  },
};

export const languages = {
  createLanguageStatusItem: () => ({ dispose: () => undefined }) as Record<string, unknown>,
};

export const extensions = { getExtension: () => undefined };

export const env = {
  clipboard: { writeText: () => Promise.resolve() },
  openExternal: () => Promise.resolve(true),
  appName: "Test",
};
