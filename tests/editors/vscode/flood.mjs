/**
 * A server that is busier than any: it speaks the protocol in the words of the golden messages, has 200 runs at work, and
 * tells 2,000 events a second until one of the runs is cancelled, which ends them all.
 *
 * At the end it says on standard error how many it told in which time.
 */

import { readFileSync } from "node:fs";

const RUNS = 200;
const EVENTS_A_SECOND = 2000;
const BEAT_MS = 10;

const golden = (file) => JSON.parse(readFileSync(new URL(`../../golden/${file}.json`, import.meta.url), "utf8"));
const { run: ended } = golden("run").params;
const { result: timeline } = golden("commands/show");
const { delta, total, ...usage } = golden("usage").params;

const began = Date.now();
const idOf = (index) => `20260101-000000-${String(index).padStart(6, "0")}-abcdef`;
const runs = Array.from({ length: RUNS }, (_, index) => {
  const { finishedAt, text, changes, ...run } = ended;
  const startedAt = new Date(began - index * 1000).toISOString();
  return {
    ...run,
    id: idOf(index),
    title: `work ${index}`,
    status: "running",
    startedAt,
    disposition: "none",
    findings: 0,
  };
});

function send(message) {
  const body = JSON.stringify({ jsonrpc: "2.0", ...message });
  process.stdout.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
}

let told = 0;
let first;
let beat;

function tell() {
  for (const due = ((Date.now() - first) * EVENTS_A_SECOND) / 1000; told < due; told += 1) {
    const runId = idOf(told % RUNS);
    const step = Math.floor(told / RUNS) + 1;
    if (told % 10 === 0) {
      send({
        method: "$/outpost/usage",
        params: { ...usage, runId, subagentId: undefined, agent: ended.agent, delta, total },
      });
    } else {
      const event = { kind: "tool", at: new Date().toISOString(), step, callId: String(told), name: `tool ${step}` };
      send({ method: "$/outpost/event", params: { runId, event } });
    }
  }
}

function finish() {
  clearInterval(beat);
  process.stderr.write(`told ${told} events in ${Date.now() - first} ms\n`);
  const finishedAt = new Date().toISOString();
  for (const [index, run] of runs.entries()) {
    runs[index] = { ...run, status: "cancelled", finishedAt };
    send({ method: "$/outpost/run", params: { run: runs[index] } });
  }
  return { cancelled: true };
}

const COMMANDS = {
  "outpost.runs": () => {
    first ??= Date.now();
    beat ??= setInterval(tell, BEAT_MS);
    return { runs };
  },
  "outpost.show": ({ runId }) => ({
    ...timeline,
    run: runs.find(({ id }) => id === runId),
    subagents: [],
    steps: [],
    routes: [],
  }),
  "outpost.findings": () => ({ findings: [] }),
  "outpost.agents": () => golden("commands/agents").result,
  "outpost.cancel": finish,
};

const REQUESTS = {
  initialize: () => ({
    capabilities: { executeCommandProvider: { commands: [] }, experimental: { outpost: { protocol: 1 } } },
    serverInfo: { name: "flood", version: "1" },
  }),
  "workspace/executeCommand": ({ command, arguments: [params] }) => COMMANDS[command](params),
  shutdown: () => null,
};

let waiting = Buffer.alloc(0);
process.stdin.on("data", (data) => {
  waiting = Buffer.concat([waiting, data]);
  for (;;) {
    const head = waiting.indexOf("\r\n\r\n");
    const length = Number(/Content-Length: (\d+)/iu.exec(waiting.subarray(0, Math.max(head, 0)))?.[1]);
    if (head < 0 || waiting.length < head + 4 + length) {
      return;
    }
    const { id, method, params } = JSON.parse(waiting.subarray(head + 4, head + 4 + length));
    waiting = waiting.subarray(head + 4 + length);
    if (method === "exit") {
      process.exit();
    }
    if (id !== undefined && method !== undefined) {
      send({ id, result: REQUESTS[method]?.(params) ?? null });
    }
  }
});
process.stdin.on("end", () => process.exit());
