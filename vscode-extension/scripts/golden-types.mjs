/**
 * Writes the golden messages as TypeScript that claims to be of the protocol's types, for the compiler to check.
 *
 * A message that has a field which the types do not know, or lacks one that they demand, fails the compilation.
 */

import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const golden = fileURLToPath(new URL("../../tests/golden/", import.meta.url));
const target = fileURLToPath(new URL("../.test-build/", import.meta.url));

const lines = ['import type { Commands, Notifications } from "../src/protocol";', ""];
for (const file of (await readdir(golden, { recursive: true })).filter((name) => name.endsWith(".json")).sort()) {
  const message = JSON.parse(await readFile(golden + file, "utf8"));
  // What is plain LSP has its types elsewhere.
  if (!/^(?:\$\/)?outpost[./]/u.test(message.method ?? "")) {
    continue;
  }
  const isNotification = message.method.startsWith("$/");
  const method = JSON.stringify(message.method);
  for (const part of isNotification ? ["params"] : ["params", "result"]) {
    const type = isNotification ? `Notifications[${method}]` : `Commands[${method}]["${part}"]`;
    const name = `${file.replace(/\W+/gu, "_")}_${part}`;
    lines.push(`export const ${name} = ${JSON.stringify(message[part], undefined, 2)} satisfies ${type};`, "");
  }
}
await mkdir(target, { recursive: true });
await writeFile(`${target}golden.ts`, lines.join("\n"));
