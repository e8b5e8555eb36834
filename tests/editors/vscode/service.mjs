/** The scripted model service of the Python tests, as a process; it plays models and the decider that chooses among them. */

import { spawn } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const PROJECT = fileURLToPath(new URL("../../..", import.meta.url));
const PYTHON = process.env.OUTPOST_PYTHON ?? join(dirname(process.env.OUTPOST_LSP), "python");

export class Service {
  static async start(answers) {
    const script = join(mkdtempSync(join(tmpdir(), "outpost-service-")), "script.json");
    writeFileSync(script, JSON.stringify(answers));
    const process = spawn(PYTHON, ["-m", "tests.support.model_server", "--script", script], { cwd: PROJECT });
    let trouble = "";
    process.stderr.on("data", (data) => (trouble += data));
    for await (const line of createInterface({ input: process.stdout })) {
      const found = /^listening on (\S+)/u.exec(line);
      if (found) {
        return new Service(process, found[1]);
      }
    }
    throw new Error(`the service did not start: ${trouble}`);
  }

  constructor(process, url) {
    this.process = process;
    this.url = url;
  }

  async requests() {
    return (await fetch(new URL("/control/requests", this.url))).json();
  }

  async state() {
    return (await fetch(new URL("/control/state", this.url))).json();
  }

  /** Let go of the answers that `hold` a name. */
  async release(name) {
    await fetch(new URL("/control/release", this.url), { method: "POST", body: JSON.stringify(name) });
  }

  stop() {
    this.process.kill();
  }
}

/** How sure the decider is that a choice is right, as a service of its kind says it. */
export function decision(choice, confidence, more = {}) {
  const other = choice === "deep" ? "fast" : "deep";
  const probabilities = { [choice]: confidence, [other]: Number((1 - confidence).toFixed(4)) };
  return {
    when: { path: "/v1/systemone" },
    json: {
      model: "scripted",
      answers: { route: { type: "choice", choice, probabilities, confidence } },
      usage: { input_tokens: 40, output_tokens: 0, truncated: false, truncated_questions: [] },
    },
    ...more,
  };
}
