/**
 * What the rest of the extension may ask of the server, whichever process it is at the moment.
 */

import type { CancellationToken } from "vscode";

import type { CommandName, Commands, Failure } from "../protocol";

export interface RequestOptions {
  readonly token?: CancellationToken;
  readonly workDoneToken?: string;
}

export interface Session {
  /** Whether a server is there to be asked. */
  readonly isRunning: boolean;
  /** Send a command; a refused or failed one rejects with the server's own words. */
  request<C extends CommandName>(
    command: C,
    params: Commands[C]["params"],
    options?: RequestOptions,
  ): Promise<Commands[C]["result"]>;
}

/** There is no server to ask. */
export class NoServerError extends Error {
  constructor() {
    super("The Outpost server is not running.");
  }
}

const CANCELLED = -32800;

export function isCancelled(error: unknown): boolean {
  return typeof error === "object" && error !== null && (error as { code?: unknown }).code === CANCELLED;
}

/** What the server said about a request that failed, for a person. */
export function failureText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function failureOf(error: unknown): Failure | undefined {
  const data: unknown = typeof error === "object" && error !== null ? (error as { data?: unknown }).data : undefined;
  return typeof data === "object" && data !== null && "code" in data ? (data as Failure) : undefined;
}
