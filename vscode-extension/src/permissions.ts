/**
 * Permission questions of agents. One that is not answered is denied by the server, so it must not be overlooked: it
 * stands in the status bar until it is settled, and can be asked again from there.
 */

import type { QuestionParams } from "./server/connection";

export interface Asked {
  readonly message: string;
  readonly answers: readonly string[];
}

/** Puts a question to the person; `undefined` when they turned it away without an answer. */
export type Ask = (asked: Asked, isAgain: boolean) => Promise<string | undefined>;

interface Waiting extends Asked {
  settle(answer: string | undefined): void;
}

export class Questions {
  private readonly line: Waiting[] = [];

  constructor(
    private readonly ask: Ask,
    /** Told how many questions wait. */
    private readonly tell: (waiting: number) => void,
  ) {}

  /** Ask; the answer is `null` when there is none. */
  take(params: QuestionParams, onWithdrawn: (listener: () => void) => void): Promise<{ title: string } | null> {
    const answers = (params.actions ?? []).map(({ title }) => title);
    return new Promise((resolve) => {
      const waiting: Waiting = {
        message: params.message,
        answers,
        settle: (answer) => {
          this.remove(waiting);
          resolve(answer === undefined ? null : { title: answer });
        },
      };
      this.line.push(waiting);
      this.tell(this.line.length);
      onWithdrawn(() => {
        waiting.settle(undefined);
      });
      void this.put(waiting, false);
    });
  }

  /** Ask the oldest question again: its message may have gone out of sight. */
  async askAgain(): Promise<void> {
    const [oldest] = this.line;
    if (oldest !== undefined) {
      await this.put(oldest, true);
    }
  }

  /** The server is gone: nobody waits for answers. */
  dropAll(): void {
    for (const waiting of [...this.line]) {
      waiting.settle(undefined);
    }
  }

  private async put(waiting: Waiting, isAgain: boolean): Promise<void> {
    const answer = await this.ask(waiting, isAgain);
    // A message that only went away leaves the question open; the server decides how long.
    if (answer !== undefined && this.line.includes(waiting)) {
      waiting.settle(answer);
    }
  }

  private remove(waiting: Waiting): void {
    const index = this.line.indexOf(waiting);
    if (index >= 0) {
      this.line.splice(index, 1);
      this.tell(this.line.length);
    }
  }
}
