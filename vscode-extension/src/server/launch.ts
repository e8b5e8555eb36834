/**
 * How the server is started: which program, with which arguments; or what is missing.
 *
 * The order: the setting `outpost.serverPath`, the extension's own environment, `outpost-lsp` in `PATH`. Nothing in the
 * workspace takes part.
 */

import { constants } from "node:fs";
import { access } from "node:fs/promises";
import { homedir } from "node:os";
import { delimiter, isAbsolute, join } from "node:path";

import { environmentPython, type Place } from "./environment";

export interface Launch {
  readonly command: string;
  readonly arguments: readonly string[];
  /** Where the program was named, for people. */
  readonly from: "the setting outpost.serverPath" | "the extension's own environment" | "PATH";
}

export interface Missing {
  readonly message: string;
  /** Whether a setting is at fault, so that installing is no help. */
  readonly isSetting: boolean;
}

export interface Wishes {
  readonly serverPath: string;
  readonly serverArguments: readonly string[];
  readonly searchPath: string;
  readonly place: Place;
}

export async function findLaunch(wishes: Wishes): Promise<Launch | Missing> {
  const serve = ["serve", ...wishes.serverArguments];
  const named = wishes.serverPath.trim();
  if (named !== "") {
    const command = await programAt(named, wishes.searchPath);
    return command === undefined
      ? { message: `The setting outpost.serverPath names ${named}, which is not a program.`, isSetting: true }
      : { command, arguments: serve, from: "the setting outpost.serverPath" };
  }
  const python = await environmentPython(wishes.place);
  if (python !== undefined) {
    // `-I` keeps a folder named outpost_lsp in the working directory out of it.
    return {
      command: python,
      arguments: ["-I", "-m", "outpost_lsp", ...serve],
      from: "the extension's own environment",
    };
  }
  const command = await programAt("outpost-lsp", wishes.searchPath);
  return command === undefined
    ? { message: "The Outpost server is not installed yet.", isSetting: false }
    : { command, arguments: serve, from: "PATH" };
}

export function isLaunch(found: Launch | Missing): found is Launch {
  return "command" in found;
}

/** The absolute path of a program: as it is named, with `~`, or by a search. */
async function programAt(name: string, searchPath: string): Promise<string | undefined> {
  const path = name.startsWith("~/") ? join(homedir(), name.slice(2)) : name;
  if (path.includes("/")) {
    return isAbsolute(path) && (await isProgram(path)) ? path : undefined;
  }
  for (const folder of searchPath.split(delimiter)) {
    // An empty or relative entry means the working folder, whose programs are not ours to start.
    if (isAbsolute(folder) && (await isProgram(join(folder, path)))) {
      return join(folder, path);
    }
  }
  return undefined;
}

async function isProgram(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}
