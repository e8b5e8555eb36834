/**
 * What the server wants the person to read, with buttons that lead on.
 *
 * The message that closes a run comes just before the notification that ends it; both together say which buttons help.
 */

import { isLive, type Run } from "./protocol";
import type { MessageParams } from "./server/connection";

/** A button and the command behind it. */
export interface Choice {
  readonly title: string;
  readonly command: string;
  readonly argument?: unknown;
}

export type Show = (kind: number, message: string, choices: readonly Choice[]) => void;

const PATIENCE_MS = 300;

export class Messages {
  private waiting: { params: MessageParams; timer: NodeJS.Timeout } | undefined;
  private readonly quiet = new Set<string>();

  /** `wanted` tells the providers whose keys the server asked for in vain. */
  constructor(
    private readonly show: Show,
    private readonly wanted: () => readonly string[] = () => [],
    private readonly patienceMs = PATIENCE_MS,
  ) {}

  take(params: MessageParams): void {
    this.flush([]);
    const timer = setTimeout(() => {
      this.flush([]);
    }, this.patienceMs);
    this.waiting = { params, timer };
  }

  /** Say nothing of this run's end when there is nothing to look at: nobody asked for it. */
  keepQuietAbout(runId: string): void {
    this.quiet.add(runId);
  }

  /** A run changed; when it ended and the waiting message is about it, the message gets its buttons. */
  runChanged(run: Run): void {
    if (isLive(run)) {
      return;
    }
    const isQuiet = this.quiet.delete(run.id) && run.status === "succeeded" && run.findings === 0;
    if (isQuiet) {
      this.dispose();
    } else {
      this.flush(choicesFor(run, this.wanted()));
    }
  }

  dispose(): void {
    clearTimeout(this.waiting?.timer);
    this.waiting = undefined;
  }

  private flush(choices: readonly Choice[]): void {
    const waiting = this.waiting;
    if (waiting !== undefined) {
      clearTimeout(waiting.timer);
      this.waiting = undefined;
      this.show(waiting.params.type, waiting.params.message, choices);
    }
  }
}

/** What one may want to do next with a run that ended; `wanted` are the providers whose keys are missing. */
export function choicesFor(run: Run, wanted: readonly string[] = []): Choice[] {
  const argument = run.id;
  const choices: Choice[] = [];
  const provider = run.error?.code === "configuration" ? run.error.details?.["provider"] : undefined;
  if (typeof provider === "string" && wanted.includes(provider)) {
    choices.push({ title: "Set API Key…", command: "outpost.ui.setKey", argument: provider });
  }
  if (run.findings > 0) {
    choices.push({ title: "Show Findings", command: "outpost.findings.focus" });
  }
  if (run.disposition === "pending") {
    choices.push({ title: "Show Changes", command: "outpost.ui.showChanges", argument });
  }
  if (run.status === "interrupted" || (run.status === "failed" && run.conversation !== undefined)) {
    choices.push({ title: "Continue", command: "outpost.ui.continue", argument });
  }
  if (run.status !== "cancelled" && choices.length < 2) {
    choices.push({ title: "Show Timeline", command: "outpost.ui.showTimeline", argument });
  }
  return choices;
}
