/**
 * Which Python can carry the server: candidates in order, each asked for its version.
 *
 * Only programs that the user's machine settings, the Python extension or `PATH` name are started, never one of the
 * workspace's own choosing in an untrusted folder.
 */

import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

export const LEAST: readonly [number, number] = [3, 11];
export const LEAST_TEXT = LEAST.join(".");

const ASK = "import sys; print('outpost', *sys.version_info[:3])";
const PATIENCE_MS = 20_000;

export interface Python {
  readonly path: string;
  readonly version: string;
}

export interface Candidate {
  readonly path: string;
  /** Where it was named, for people. */
  readonly from: string;
}

/** What became of each candidate that could not be used. */
export interface Refusal {
  readonly candidate: Candidate;
  readonly reason: string;
}

export const FROM_PATH: readonly Candidate[] = [
  "python3",
  "python3.14",
  "python3.13",
  "python3.12",
  "python3.11",
  "python",
].map((path) => ({ path, from: "PATH" }));

/** The first candidate that is recent enough, or why none is. */
export async function findPython(
  candidates: readonly Candidate[],
): Promise<{ readonly python: Python } | { readonly refusals: readonly Refusal[] }> {
  const refusals: Refusal[] = [];
  for (const candidate of candidates) {
    const found = await probe(candidate.path);
    if (typeof found !== "string") {
      return { python: found };
    }
    refusals.push({ candidate, reason: found });
  }
  return { refusals };
}

/** The Python at a path, or why it cannot be used. */
export async function probe(path: string): Promise<Python | string> {
  try {
    // `-I`: nothing of the current folder or of the environment takes part.
    const { stdout } = await run(path, ["-I", "-c", ASK], { timeout: PATIENCE_MS, cwd: "/" });
    const numbers = /^outpost (\d+) (\d+) (\d+)/mu.exec(stdout);
    if (numbers === null) {
      return "it does not answer like a Python";
    }
    const [major, minor, micro] = numbers.slice(1).map(Number) as [number, number, number];
    const version = `${String(major)}.${String(minor)}.${String(micro)}`;
    if (major < LEAST[0] || (major === LEAST[0] && minor < LEAST[1])) {
      return `Python ${version} is too old; ${LEAST_TEXT} or later is needed`;
    }
    return { path, version };
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "ENOENT" ? "it is not there" : code === "EACCES" ? "it may not be run" : "it could not be run";
  }
}

/** Why no Python can be used, in one sentence. */
export function refusalText(refusals: readonly Refusal[]): string {
  const there = refusals.filter(({ reason }) => reason !== "it is not there");
  // A name in PATH that is not there says nothing; a path that somebody set does.
  const told = [
    ...there,
    ...refusals.filter(({ candidate, reason }) => candidate.from !== "PATH" && reason === "it is not there"),
  ];
  if (told.length === 0) {
    return `Outpost needs Python ${LEAST_TEXT} or later, and there is none in PATH.`;
  }
  const list = told.map(({ candidate, reason }) => `${candidate.path} (${candidate.from}): ${reason}`).join("; ");
  return `Outpost needs Python ${LEAST_TEXT} or later. Looked at: ${list}.`;
}
