/**
 * The server's own Python environment in the extension's storage: made once per version, from the wheels in the package
 * or, after the user agreed, from their index.
 *
 * It is built beside and put in place by one rename, so that a half-made one is never found and two windows may build at
 * once. The user's own environments are not touched.
 */

import { execFile, type ExecFileException } from "node:child_process";
import { constants } from "node:fs";
import { access, mkdir, readdir, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";

import type { Python } from "./python";

const PATIENCE_MS = 600_000;
const MARK = "ready.json";
const STALE_MS = 14 * 24 * 3600 * 1000;

export interface Place {
  /** The extension's storage. */
  readonly storage: string;
  readonly version: string;
}

export interface Source {
  /** The folder of wheels in the package; absent when the package has none. */
  readonly wheels?: string;
}

export class EnvironmentError extends Error {
  constructor(
    message: string,
    readonly output: string,
  ) {
    super(message);
  }
}

/** The interpreter of the environment of this version, when it is there and whole. */
export async function environmentPython(place: Place): Promise<string | undefined> {
  const folder = folderOf(place);
  const python = interpreterIn(folder);
  try {
    const now = new Date();
    await access(python, constants.X_OK);
    // The time of the mark says when it was last used, for `forgetOldEnvironments`.
    await utimes(join(folder, MARK), now, now);
    return python;
  } catch {
    return undefined;
  }
}

/** Make the environment; the result is its interpreter. `report` is told what is going on. */
export async function makeEnvironment(
  place: Place,
  python: Python,
  source: Source,
  report: (message: string) => void,
  signal?: AbortSignal,
): Promise<string> {
  const building = join(place.storage, `.building-${place.version}-${String(process.pid)}-${String(Date.now())}`);
  try {
    await mkdir(place.storage, { recursive: true });
    report(`making an environment with Python ${python.version}`);
    const pip = source.wheels === undefined ? undefined : await pipIn(source.wheels);
    await run(python.path, ["-I", "-m", "venv", ...(pip === undefined ? [] : ["--without-pip"]), building], signal);
    report("installing the server");
    await run(interpreterIn(building), installing(place.version, source, pip), signal);
    await writeFile(join(building, MARK), JSON.stringify({ version: place.version, python: python.version }));
    await putInPlace(building, folderOf(place));
  } finally {
    await rm(building, { recursive: true, force: true });
  }
  return interpreterIn(folderOf(place));
}

/** Remove environments of other versions that were not used for two weeks. */
export async function forgetOldEnvironments(place: Place, now = Date.now()): Promise<void> {
  const mine = folderOf(place);
  for (const name of await readdir(place.storage).catch(() => [])) {
    const folder = join(place.storage, name);
    if (folder === mine || !/^(?:server|\.building)-/u.test(name)) {
      continue;
    }
    const used = await stat(join(folder, MARK)).catch(() => stat(folder).catch(() => undefined));
    if (used !== undefined && now - used.mtimeMs > STALE_MS) {
      await rm(folder, { recursive: true, force: true });
    }
  }
}

export function interpreterIn(folder: string): string {
  return join(folder, "bin", "python");
}

function folderOf(place: Place): string {
  return join(place.storage, `server-${place.version}`);
}

/** The package installer among the wheels: with it, a Python without `ensurepip` will do. */
async function pipIn(wheels: string): Promise<string | undefined> {
  const name = (await readdir(wheels)).find((file) => /^pip-[\d.]+-py3-none-any\.whl$/u.test(file));
  return name === undefined ? undefined : join(wheels, name);
}

function installing(version: string, source: Source, pip: string | undefined): string[] {
  const command = pip === undefined ? ["-I", "-m", "pip"] : ["-I", join(pip, "pip")];
  const quiet = ["install", "--quiet", "--disable-pip-version-check", "--no-input", "--no-warn-script-location"];
  const from = source.wheels === undefined ? [] : ["--no-index", "--find-links", source.wheels];
  return [...command, ...quiet, ...from, `outpost-lsp==${version}`];
}

async function putInPlace(building: string, folder: string): Promise<void> {
  try {
    await rename(building, folder);
  } catch (error) {
    if (await isWhole(folder)) {
      return; // Another window was faster.
    }
    await rm(folder, { recursive: true, force: true });
    await rename(building, folder).catch(() => {
      throw error;
    });
  }
}

async function isWhole(folder: string): Promise<boolean> {
  return Promise.all([access(join(folder, MARK)), access(interpreterIn(folder), constants.X_OK)]).then(
    () => true,
    () => false,
  );
}

function run(program: string, parameters: readonly string[], signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile(
      program,
      [...parameters],
      { timeout: PATIENCE_MS, maxBuffer: 16 * 1024 * 1024, ...(signal === undefined ? {} : { signal }) },
      (error: ExecFileException | null, stdout, stderr) => {
        if (error === null) {
          resolve();
        } else {
          reject(new EnvironmentError(explain(error, stdout + stderr), stdout + stderr));
        }
      },
    );
  });
}

function explain(error: ExecFileException, output: string): string {
  if (error.name === "AbortError") {
    return "The installation was cancelled.";
  }
  if (/ensurepip|python3[\d.]*-venv/u.test(output)) {
    return "This Python has no module venv: install it (on Debian and Ubuntu the package python3-venv) and try again.";
  }
  if (/No matching distribution|Could not find a version/u.test(output)) {
    return "The server's package was not found for this Python: the output has what was looked for.";
  }
  return "The server could not be installed: the output has the reason.";
}
