/**
 * The editor protocol, version 1, as types: records, commands and notifications of the server.
 *
 * Nothing here runs. The golden messages that the server's own tests use are compiled against these types, so that
 * neither side can change a name alone.
 */

export const PROTOCOL_VERSION = 1;

export const SECRET_REQUEST = "outpost/secret";

/** What the server puts into a failed request's `data`. */
export interface Failure {
  readonly code: string;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
  readonly runId?: string;
}

export type * from "./answers";
export type * from "./commands";
export * from "./notifications";
export * from "./records";
