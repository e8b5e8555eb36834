/**
 * One server process and the language client that speaks with it. A new one is made for every start.
 */

import { workspace, type CancellationToken, type LogOutputChannel } from "vscode";
import {
  CloseAction,
  ErrorAction,
  LanguageClient,
  RevealOutputChannelOn,
  WorkDoneProgress,
  WorkDoneProgressCancelNotification,
  type Middleware,
  type WorkDoneProgressBegin,
  type WorkDoneProgressEnd,
  type WorkDoneProgressReport,
} from "vscode-languageclient/node";

import type { News } from "../news";
import {
  NOTIFICATION_NAMES,
  PROTOCOL_VERSION,
  SECRET_REQUEST,
  type CommandName,
  type Commands,
  type NotificationName,
  type Notifications,
} from "../protocol";
import type { Launch } from "./launch";
import type { Connection, Stopped } from "./life";
import { ServerProcess } from "./process";
import { failureText, type RequestOptions } from "./session";

export interface MessageParams {
  readonly type: number;
  readonly message: string;
}

export interface QuestionParams extends MessageParams {
  readonly actions?: readonly { readonly title: string }[];
}

/** What the server asks of the person or of the editor, answered elsewhere. */
export interface Host {
  readonly news: News;
  readonly log: LogOutputChannel;
  readonly middleware: Middleware;
  showMessage(params: MessageParams): void;
  /** `withdrawn` is called back when the server does not want an answer any more. */
  ask(params: QuestionParams, onWithdrawn: (listener: () => void) => void): Promise<{ title: string } | null>;
  secret(provider: string): Promise<string | undefined>;
}

export type ProgressValue = WorkDoneProgressBegin | WorkDoneProgressReport | WorkDoneProgressEnd;

/** The library's client, whose errors are told by us: once, and with a way out. */
class QuietClient extends LanguageClient {
  override error(message: string, data?: unknown): void {
    super.error(message, data, false);
  }

  override info(message: string, data?: unknown): void {
    super.info(message, data, false);
  }
}

export class ServerConnection implements Connection {
  private constructor(
    private readonly client: QuietClient,
    private readonly process: ServerProcess,
    private readonly onStop: () => void,
  ) {}

  /** Start a server; `died` is told when it ends before it was asked to. */
  static async open(launch: Launch, host: Host, died: Stopped): Promise<ServerConnection> {
    const process = await ServerProcess.start(launch);
    let isWanted = true;
    let hasClosed = false;
    const wasClosed = (): boolean => hasClosed;
    const client = new QuietClient("outpost", "Outpost", () => Promise.resolve(process.child), {
      documentSelector: [{ scheme: "file" }],
      outputChannel: host.log,
      traceOutputChannel: host.log,
      revealOutputChannelOn: RevealOutputChannelOn.Never,
      stdioOptions: {
        stdout: () => undefined,
        stderr: (stream, log) => {
          stream.on("data", (text: Buffer | string) => {
            log.append(String(text));
          });
        },
      },
      initializationOptions: () => ({ trusted: workspace.isTrusted, secrets: true }),
      initializationFailedHandler: () => false,
      errorHandler: {
        error: () => ({ action: ErrorAction.Continue, handled: true }),
        closed: () => {
          hasClosed = true;
          return { action: CloseAction.DoNotRestart, handled: true };
        },
      },
      middleware: host.middleware,
    });
    void process.ended.then((how) => {
      if (isWanted) {
        const words = process.lastWords;
        died(words === "" ? how : `${how}: ${words}`);
      }
    });
    const connection = new ServerConnection(client, process, () => {
      isWanted = false;
    });
    listen(client, host);
    try {
      await client.start();
    } catch (error) {
      isWanted = false;
      const how = await connection.failed();
      // A process that ended says more than the request that it left unanswered.
      throw new Error(wasClosed() ? how : failureText(error), { cause: error });
    }
    const protocol = protocolOf(client.initializeResult?.capabilities.experimental);
    if (protocol !== PROTOCOL_VERSION) {
      host.log.warn(`the server speaks protocol ${String(protocol)}, this extension ${String(PROTOCOL_VERSION)}`);
    }
    return connection;
  }

  get version(): string {
    return this.client.initializeResult?.serverInfo?.version ?? "";
  }

  get commands(): readonly string[] {
    return this.client.initializeResult?.capabilities.executeCommandProvider?.commands ?? [];
  }

  get pid(): number | undefined {
    return this.process.child.pid;
  }

  request<C extends CommandName>(
    command: C,
    params: Commands[C]["params"],
    { token, workDoneToken }: RequestOptions = {},
  ): Promise<Commands[C]["result"]> {
    const body = { command, arguments: [params], ...(workDoneToken === undefined ? {} : { workDoneToken }) };
    // An absent token must be left out: the library would take it for another parameter.
    return token === undefined
      ? this.client.sendRequest<Commands[C]["result"]>("workspace/executeCommand", body)
      : this.client.sendRequest<Commands[C]["result"]>("workspace/executeCommand", body, token);
  }

  onProgress(token: string, listener: (value: ProgressValue) => void): { dispose(): void } {
    return this.client.onProgress(WorkDoneProgress.type, token, listener);
  }

  cancelProgress(token: string): void {
    void this.client.sendNotification(WorkDoneProgressCancelNotification.type, { token });
  }

  async stop(): Promise<void> {
    this.onStop();
    try {
      await this.client.dispose();
    } catch {
      // It was not running any more, or did not answer; the process is ended in any case.
    }
    await this.process.finish();
  }

  /** The start failed: make sure that nothing is left of it. The result is how the process ended. */
  private async failed(): Promise<string> {
    this.process.child.stdin.destroy();
    await this.process.finish();
    const words = this.process.lastWords;
    const how = await this.process.ended;
    return words === "" ? how : `${how}: ${words}`;
  }
}

function listen(client: LanguageClient, host: Host): void {
  for (const name of NOTIFICATION_NAMES) {
    client.onNotification(name, (params: Notifications[NotificationName]) => {
      host.news.emit(name, params);
    });
  }
  client.onNotification("window/showMessage", (params: MessageParams) => {
    host.showMessage(params);
  });
  client.onRequest("window/showMessageRequest", (params: QuestionParams, token: CancellationToken) =>
    host.ask(params, (listener) => token.onCancellationRequested(listener)),
  );
  client.onRequest(SECRET_REQUEST, async ({ provider }: { provider: string }) => ({
    value: (await host.secret(provider)) ?? null,
  }));
}

function protocolOf(experimental: unknown): unknown {
  const ours = (experimental as { outpost?: { protocol?: unknown } } | undefined)?.outpost;
  return ours?.protocol;
}
