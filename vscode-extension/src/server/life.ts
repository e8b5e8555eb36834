/**
 * The life of the server process: started, restarted when it dies, given up when it keeps dying.
 *
 * Starts and stops never overlap: each waits for the one before. Any number of restarts asked for meanwhile make one.
 */

import { Emitter } from "../news";

/** A server that runs. */
export interface Connection {
  /** Stop it; the promise is fulfilled when it is gone, however it went. */
  stop(): Promise<void>;
}

export type Stopped = (reason: string) => void;

/** Starts a server; calls `died` once when it ends by itself. `undefined`: there is none, and nothing is wrong. */
export type Connect<C extends Connection> = (died: Stopped) => Promise<C | undefined>;

export type State =
  | { readonly kind: "stopped" }
  | { readonly kind: "starting" }
  | { readonly kind: "running" }
  | { readonly kind: "missing" }
  | { readonly kind: "restarting"; readonly reason: string }
  | { readonly kind: "failed"; readonly reason: string };

/** Deaths within this time count together. */
export const WINDOW_MS = 180_000;
/** With so many deaths the server is given up until somebody asks for it. */
export const MOST_DEATHS = 5;

export interface Clock {
  now(): number;
  wait(milliseconds: number): Promise<void>;
}

export const CLOCK: Clock = {
  now: () => Date.now(),
  wait: (milliseconds) =>
    new Promise((resolve) => {
      setTimeout(resolve, milliseconds);
    }),
};

export class ServerLife<C extends Connection> {
  private current: C | undefined;
  private known: State = { kind: "stopped" };
  private deaths: number[] = [];
  private generation = 0;
  private working: Promise<void> = Promise.resolve();
  private restarting: Promise<void> | undefined;
  private isOver = false;
  private readonly emitter = new Emitter<State>();

  readonly onState = this.emitter.on;

  constructor(
    private readonly connect: Connect<C>,
    private readonly clock: Clock = CLOCK,
  ) {}

  get state(): State {
    return this.known;
  }

  get connection(): C | undefined {
    return this.current;
  }

  start(): Promise<void> {
    return this.next(async () => {
      if (this.current === undefined) {
        await this.begin();
      }
    });
  }

  /** Stop and start again; forgets earlier deaths. Asked for again before it began, it is the same restart. */
  restart(): Promise<void> {
    this.restarting ??= this.next(async () => {
      this.restarting = undefined;
      this.deaths = [];
      await this.end();
      await this.begin();
    });
    return this.restarting;
  }

  /** Stop for good. */
  async dispose(): Promise<void> {
    this.isOver = true;
    await this.next(() => this.end());
  }

  private next(work: () => Promise<void>): Promise<void> {
    this.working = this.working.then(work, work);
    return this.working;
  }

  private async begin(): Promise<void> {
    if (this.isOver) {
      return;
    }
    this.generation += 1;
    const mine = this.generation;
    this.become({ kind: "starting" });
    let death: string | undefined;
    try {
      const connection = await this.connect((reason) => {
        death ??= reason;
        if (mine === this.generation && this.current !== undefined) {
          this.died(reason);
        }
      });
      if (death !== undefined) {
        throw new Error(death);
      }
      this.current = connection;
      this.become({ kind: connection === undefined ? "missing" : "running" });
    } catch (error) {
      this.died(error instanceof Error ? error.message : String(error));
    }
  }

  private async end(): Promise<void> {
    const connection = this.current;
    this.current = undefined;
    this.generation += 1;
    try {
      await connection?.stop();
    } finally {
      this.become({ kind: "stopped" });
    }
  }

  private died(reason: string): void {
    this.current = undefined;
    this.generation += 1;
    const now = this.clock.now();
    this.deaths = [...this.deaths.filter((time) => now - time < WINDOW_MS), now];
    if (this.isOver) {
      this.become({ kind: "stopped" });
    } else if (this.deaths.length >= MOST_DEATHS) {
      this.become({ kind: "failed", reason });
    } else {
      this.become({ kind: "restarting", reason });
      void this.startLater(250 * 2 ** this.deaths.length, this.generation);
    }
  }

  private async startLater(milliseconds: number, generation: number): Promise<void> {
    await this.clock.wait(milliseconds);
    await this.next(async () => {
      // Somebody started or stopped it meanwhile.
      if (this.generation === generation) {
        await this.begin();
      }
    });
  }

  private become(state: State): void {
    this.known = state;
    this.emitter.emit(state);
  }
}
