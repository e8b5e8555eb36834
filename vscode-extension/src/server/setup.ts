/**
 * Installing the server into the extension's own environment: with the wheels of the package at once, from the user's
 * index only after they agreed.
 */

import {
  commands,
  env,
  extensions,
  ProgressLocation,
  Uri,
  window,
  type CancellationToken,
  type LogOutputChannel,
} from "vscode";
import { access } from "node:fs/promises";

import { openSettings, own } from "../settings";
import { EnvironmentError, forgetOldEnvironments, makeEnvironment, type Place, type Source } from "./environment";
import { findPython, FROM_PATH, LEAST_TEXT, refusalText, type Candidate } from "./python";

export class Setup {
  private running: Promise<boolean> | undefined;

  constructor(
    private readonly place: Place,
    private readonly bundled: string,
    private readonly log: LogOutputChannel,
    private readonly report: (message: string) => void,
  ) {}

  /** The wheels that came with the extension, when it is a package for this platform. */
  async source(): Promise<Source> {
    return access(this.bundled).then(
      () => ({ wheels: this.bundled }),
      () => ({}),
    );
  }

  /** Ask where that is needed, then install; whether there is a server now. Asked for again meanwhile, it is the same. */
  run(isAsked: boolean): Promise<boolean> {
    this.running ??= this.install(isAsked).finally(() => {
      this.running = undefined;
      this.report("");
    });
    return this.running;
  }

  private async install(isAsked: boolean): Promise<boolean> {
    const source = await this.source();
    if (source.wheels === undefined) {
      // Nothing is fetched that nobody asked for.
      if (!isAsked || !(await mayFetch(this.place.version))) {
        return false;
      }
    }
    const found = await findPython(await candidates());
    if ("refusals" in found) {
      const message = refusalText(found.refusals);
      this.log.warn(message);
      if (isAsked) {
        // The answer is not waited for: who mends it meanwhile and asks again is heard.
        void tellNoPython(message);
      }
      return false;
    }
    try {
      await this.make(source, found.python, isAsked);
      return true;
    } catch (error) {
      const output = error instanceof EnvironmentError ? error.output : "";
      const message = error instanceof Error ? error.message : String(error);
      this.log.error(`${message}\n${output}`);
      if (isAsked) {
        void tellFailure(message);
      }
      return false;
    }
  }

  private async make(source: Source, python: { path: string; version: string }, isAsked: boolean): Promise<void> {
    this.log.info(`installing the server with ${python.path} (Python ${python.version})`);
    const abort = new AbortController();
    const work = (): Promise<string> => makeEnvironment(this.place, python, source, this.report, abort.signal);
    await (isAsked ? withProgress(work, abort) : work());
    await forgetOldEnvironments(this.place);
  }
}

function withProgress(work: () => Promise<string>, abort: AbortController): Thenable<string> {
  const options = {
    location: ProgressLocation.Notification,
    title: "Outpost: installing the server",
    cancellable: true,
  };
  return window.withProgress(options, (_, token: CancellationToken) => {
    token.onCancellationRequested(() => {
      abort.abort();
    });
    return work();
  });
}

/** The interpreters that may carry the server, the wanted ones first. */
async function candidates(): Promise<Candidate[]> {
  const chosen = own("interpreter", "").trim();
  if (chosen !== "") {
    // Who names one does not want another.
    return [{ path: chosen, from: "the setting outpost.interpreter" }];
  }
  const selected = await pythonExtension();
  return [...(selected === undefined ? [] : [{ path: selected, from: "the Python extension" }]), ...FROM_PATH];
}

interface PythonApi {
  readonly environments?: {
    getActiveEnvironmentPath(): { readonly path: string };
    resolveEnvironment(path: unknown): Promise<{ readonly executable?: { readonly uri?: Uri } } | undefined>;
  };
}

async function pythonExtension(): Promise<string | undefined> {
  const extension = extensions.getExtension<PythonApi>("ms-python.python");
  if (extension?.isActive !== true) {
    return undefined;
  }
  const { environments } = extension.exports;
  const resolved = await environments?.resolveEnvironment(environments.getActiveEnvironmentPath());
  return resolved?.executable?.uri?.fsPath;
}

async function mayFetch(version: string): Promise<boolean> {
  const answer = await window.showInformationMessage(
    `Install outpost-lsp ${version} and what it needs from your Python package index, into an environment of the extension's own?`,
    { modal: true, detail: "Your projects' environments are not touched. A package index is asked, nothing else." },
    "Install",
    "Use an Installed Server…",
  );
  if (answer === "Use an Installed Server…") {
    await openSettings("outpost.serverPath");
  }
  return answer === "Install";
}

async function tellNoPython(message: string): Promise<void> {
  const answer = await window.showErrorMessage(message, "Choose a Python…", "Get Python");
  if (answer === "Choose a Python…") {
    await openSettings("outpost.interpreter");
  } else if (answer === "Get Python") {
    await env.openExternal(Uri.parse("https://www.python.org/downloads/"));
  }
}

async function tellFailure(message: string): Promise<void> {
  const answer = await window.showErrorMessage(`Outpost: ${message}`, "Show Output", "Choose a Python…");
  if (answer === "Show Output") {
    await commands.executeCommand("outpost.ui.showLog");
  } else if (answer === "Choose a Python…") {
    await openSettings("outpost.interpreter");
  }
}

export { LEAST_TEXT };
