/** The wire messages that the server's own tests keep. */

import { readFileSync } from "node:fs";
import { join } from "node:path";

import type { CommandName, Commands, NotificationName, Notifications } from "../src/protocol";

const FOLDER = join(process.cwd(), "..", "tests", "golden");

export function notification<N extends NotificationName>(name: N): Notifications[N] {
  const file = join(FOLDER, `${name.replace("$/outpost/", "")}.json`);
  const message = JSON.parse(readFileSync(file, "utf8")) as { method: string; params: Notifications[N] };
  if (message.method !== name) {
    throw new Error(`${file} is about ${message.method}`);
  }
  return message.params;
}

export function exchange<C extends CommandName>(
  name: C,
  file = name.replace("outpost.", ""),
): { readonly params: Commands[C]["params"]; readonly result: Commands[C]["result"] } {
  return JSON.parse(readFileSync(join(FOLDER, "commands", `${file}.json`), "utf8")) as {
    params: Commands[C]["params"];
    result: Commands[C]["result"];
  };
}
