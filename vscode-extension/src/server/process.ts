/**
 * The server as a child process: its last words are kept for the person who has to be told why it ended.
 */

import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { homedir } from "node:os";

import type { Launch } from "./launch";

const KEPT_LINES = 40;
const GRACE_MS = 3000;

export class ServerProcess {
  private readonly lines: string[] = [];
  private isEnded = false;
  private ending: string | undefined;
  readonly ended: Promise<string>;

  private constructor(readonly child: ChildProcessWithoutNullStreams) {
    child.stderr.setEncoding("utf8");
    child.stderr.on("data", (text: string) => {
      this.lines.push(...text.split("\n").filter((line) => line.trim() !== ""));
      this.lines.splice(0, this.lines.length - KEPT_LINES);
    });
    this.ended = new Promise((resolve) => {
      child.once("close", (status, signal) => {
        this.isEnded = true;
        this.ending ??= signal === null ? `it ended with status ${String(status)}` : `it was ended by ${signal}`;
        resolve(this.ending);
      });
    });
  }

  /** Start it; the promise is rejected when the program cannot be run. */
  static start(launch: Launch): Promise<ServerProcess> {
    const environment = { ...process.env };
    // The extension host may be a disguised Electron; programs that the server starts are not.
    delete environment["ELECTRON_RUN_AS_NODE"];
    const parameters = [...launch.arguments, "--clientProcessId", String(process.pid)];
    const child = spawn(launch.command, parameters, { env: environment, cwd: homedir(), stdio: "pipe" });
    return new Promise((resolve, reject) => {
      child.once("error", (error) => {
        reject(new Error(`${launch.command} could not be started: ${error.message}`));
      });
      child.once("spawn", () => {
        resolve(new ServerProcess(child));
      });
    });
  }

  /** The last thing that it wrote before it ended, which is where Python says why. */
  get lastWords(): string {
    return this.lines.at(-1) ?? "";
  }

  /** Wait for the end a moment, then make it. */
  async finish(): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const patience = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, GRACE_MS);
    });
    await Promise.race([this.ended, patience]);
    clearTimeout(timer);
    if (!this.isEnded) {
      this.child.kill("SIGKILL");
      await this.ended;
    }
  }
}
