/**
 * The one server of this window: found, installed, started, restarted; and what is asked of it by the rest.
 *
 * Nothing is said to the person about a server that is missing before they ask for something that needs it.
 */

import { window, workspace } from "vscode";

import { Emitter } from "../news";
import type { CommandName, Commands } from "../protocol";
import { openSettings, own } from "../settings";
import { ServerConnection, type Host } from "./connection";
import { findLaunch, isLaunch, type Launch, type Missing } from "./launch";
import { ServerLife, type State } from "./life";
import type { Place } from "./environment";
import { NoServerError, type RequestOptions, type Session } from "./session";
import type { Setup } from "./setup";

export class Server implements Session {
  private readonly life: ServerLife<ServerConnection>;
  private missing: Missing | undefined;
  private readonly emitter = new Emitter<State>();

  readonly onState = this.emitter.on;

  constructor(
    private readonly host: Host,
    private readonly place: Place,
    private readonly setup: Setup,
  ) {
    this.life = new ServerLife((died) => this.connect(died));
    this.life.onState((state) => {
      if ("reason" in state) {
        host.log.warn(`the server ended: ${state.reason}`);
      }
      this.emitter.emit(state);
      if (state.kind === "failed") {
        void this.tellFailure(state.reason);
      }
    });
  }

  get state(): State {
    return this.life.state;
  }

  get isRunning(): boolean {
    return this.life.connection !== undefined;
  }

  /** Start without a word; from the wheels of the package the server is even installed. */
  async startQuietly(): Promise<void> {
    try {
      await this.startIfWanted();
    } catch (error) {
      // Nobody waits for this, so the output is where it can be found.
      this.host.log.error(`the server was not started: ${String(error)}`);
    }
  }

  private async startIfWanted(): Promise<void> {
    if ((workspace.workspaceFolders ?? []).length === 0) {
      this.host.log.info("no folder is open: the server starts with the first one");
      return;
    }
    if (!isLaunch(await this.launch()) && (await this.setup.source()).wheels !== undefined) {
      await this.setup.run(false);
    }
    await this.life.start();
  }

  /** The person asked for the server: install it if need be. */
  async setUp(): Promise<void> {
    if (this.life.connection !== undefined) {
      void window.showInformationMessage(`Outpost: the server runs, version ${this.life.connection.version}.`);
      return;
    }
    const found = await this.launch();
    if (!isLaunch(found) && found.isSetting) {
      const answer = await window.showErrorMessage(`Outpost: ${found.message}`, "Open Settings");
      if (answer !== undefined) {
        await openSettings("outpost.serverPath");
      }
      return;
    }
    if (isLaunch(found) || (await this.setup.run(true))) {
      await this.life.restart();
    }
  }

  log(message: string): void {
    this.host.log.warn(message);
  }

  restart(): Promise<void> {
    return this.life.restart();
  }

  async dispose(): Promise<void> {
    await this.life.dispose();
  }

  /** The server to ask, after whatever it takes to have one; `undefined` when there is none, which the person knows. */
  async connection(): Promise<ServerConnection | undefined> {
    if (this.life.connection === undefined) {
      await this.life.start();
    }
    if (this.life.connection === undefined && this.missing !== undefined) {
      await this.setUp();
    }
    return this.life.connection;
  }

  async request<C extends CommandName>(
    command: C,
    params: Commands[C]["params"],
    options?: RequestOptions,
  ): Promise<Commands[C]["result"]> {
    const connection = await this.connection();
    if (connection === undefined) {
      throw new NoServerError();
    }
    return connection.request(command, params, options);
  }

  private async connect(died: (reason: string) => void): Promise<ServerConnection | undefined> {
    const found = await this.launch();
    if (!isLaunch(found)) {
      this.missing = found;
      this.host.log.info(found.message);
      return undefined;
    }
    this.missing = undefined;
    this.host.log.info(`starting ${found.command} ${found.arguments.join(" ")} (from ${found.from})`);
    const connection = await ServerConnection.open(found, this.host, died);
    this.host.log.info(`server ${connection.version} runs as process ${String(connection.pid)}`);
    return connection;
  }

  private launch(): Promise<Launch | Missing> {
    return findLaunch({
      serverPath: own("serverPath", ""),
      serverArguments: own<readonly string[]>("serverArguments", []),
      searchPath: process.env["PATH"] ?? "",
      place: this.place,
    });
  }

  private async tellFailure(reason: string): Promise<void> {
    const answer = await window.showErrorMessage(
      `Outpost: the server ended several times in a row and is not started again: ${reason}`,
      "Restart",
      "Show Output",
    );
    if (answer === "Restart") {
      await this.restart();
    } else if (answer === "Show Output") {
      this.host.log.show();
    }
  }
}
