/**
 * Runs that the person starts: the request, its progress with a way to cancel, and what is said when it is refused.
 */

import { randomUUID } from "node:crypto";

import { ProgressLocation, window } from "vscode";

import type { CommandName, Commands, Run } from "./protocol";
import type { ProgressValue } from "./server/connection";
import { failureText, isCancelled, NoServerError } from "./server/session";
import { own } from "./settings";

/** Commands that answer with the run that they started. */
export type StartCommand = {
  [C in CommandName]: Commands[C]["result"] extends { readonly run: Run } ? C : never;
}[CommandName];

export const START_COMMANDS: ReadonlySet<string> = new Set<StartCommand>([
  "outpost.review",
  "outpost.coordinate",
  "outpost.dispatch",
  "outpost.fix",
  "outpost.continue",
  "outpost.replay",
]);

/** The part of a connection that progress needs. */
export interface ProgressSource {
  request<C extends CommandName>(
    command: C,
    params: Commands[C]["params"],
    options: { workDoneToken: string },
  ): Promise<Commands[C]["result"]>;
  onProgress(token: string, listener: (value: ProgressValue) => void): { dispose(): void };
  cancelProgress(token: string): void;
}

export class Starter {
  private readonly endings = new Set<() => void>();

  /** `connection` answers the server to ask now, after whatever it takes to have one. */
  constructor(private readonly connection: () => Promise<ProgressSource | undefined>) {}

  /** Start a run; `undefined` when it did not begin, which the person was told. `isQuiet`: progress in the status bar. */
  async start<C extends StartCommand>(
    command: C,
    params: Commands[C]["params"],
    isQuiet = false,
  ): Promise<Run | undefined> {
    const token = randomUUID();
    let progress: { dispose(): void } | undefined;
    try {
      const source = await this.connection();
      if (source === undefined) {
        return undefined;
      }
      progress = this.show(source, token, isQuiet);
      const { run } = (await source.request(command, params, { workDoneToken: token })) as { run: Run };
      return run;
    } catch (error) {
      progress?.dispose();
      if (!isCancelled(error) && !(error instanceof NoServerError)) {
        void window.showErrorMessage(`Outpost: ${failureText(error)}`);
      }
      return undefined;
    }
  }

  /** The server is gone: nothing will end the progress of its runs. */
  endAll(): void {
    for (const end of [...this.endings]) {
      end();
    }
  }

  private show(source: ProgressSource, token: string, isQuiet: boolean): { dispose(): void } {
    let end: () => void = () => undefined;
    let report: (message: string) => void = () => undefined;
    const listening = source.onProgress(token, (value) => {
      if (value.kind === "begin") {
        const done = new Promise<void>((resolve) => {
          end = resolve;
        });
        const isWanted = !isQuiet && own<"notification" | "statusBar">("progress", "notification") === "notification";
        const location = isWanted ? ProgressLocation.Notification : ProgressLocation.Window;
        void window.withProgress({ location, title: value.title, cancellable: true }, (progress, cancelled) => {
          report = (message) => {
            progress.report({ message });
          };
          report(value.message ?? "");
          cancelled.onCancellationRequested(() => {
            source.cancelProgress(token);
          });
          return done;
        });
      } else if (value.kind === "report") {
        report(value.message ?? "");
      } else {
        finish();
      }
    });
    const finish = (): void => {
      listening.dispose();
      this.endings.delete(finish);
      end();
    };
    this.endings.add(finish);
    return { dispose: finish };
  }
}
