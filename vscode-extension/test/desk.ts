/** A desk for command tests: every command, and a session that records what is asked of the server. */

import assert from "node:assert/strict";

import { ChangeDocuments } from "../src/changes/documents";
import { changeCommands } from "../src/commands/changes";
import { register, type Context } from "../src/commands/context";
import { findingCommands } from "../src/commands/findings";
import { reviewCommands } from "../src/commands/reviews";
import { runCommands } from "../src/commands/runs";
import { FindingStore } from "../src/findings/store";
import { FindingsTree } from "../src/findings/tree";
import type { CommandName } from "../src/protocol";
import { RunStore } from "../src/runs/store";
import { Edits } from "../src/server/middleware";
import type { Session } from "../src/server/session";
import { stage } from "./stub/editor";

export class Desk {
  /** What was asked of the server, and which runs were started. */
  readonly asked: [CommandName, unknown][] = [];
  readonly started: [string, unknown][] = [];
  /** What the server answers, by command; an error is a refusal. */
  readonly answers: Partial<Record<CommandName, (params: never) => unknown>> = {};
  readonly context: Context;

  constructor() {
    stage.reset();
    const session: Session = {
      isRunning: true,
      request: (command, params) => {
        this.asked.push([command, params]);
        const answer = this.answers[command]?.(params as never) ?? {};
        return answer instanceof Error ? Promise.reject(answer) : (Promise.resolve(answer) as never);
      },
    };
    const findings = new FindingStore();
    const edits = new Edits();
    this.context = {
      session,
      starter: {
        start: (command: string, params: unknown) => Promise.resolve(void this.started.push([command, params])),
      } as never,
      findings,
      findingsTree: new FindingsTree(findings, "file"),
      runs: new RunStore(0),
      changes: new ChangeDocuments(async (runId) => (await session.request("outpost.diff", { runId })).files),
      withPreview: edits.withPreview.bind(edits),
      collectingEdits: edits.collecting.bind(edits),
    };
    register({
      ...reviewCommands(this.context),
      ...findingCommands(this.context),
      ...runCommands(this.context, { show: () => Promise.resolve() } as never),
      ...changeCommands(this.context),
    });
  }

  async run(id: string, ...given: unknown[]): Promise<void> {
    const command = stage.registered.get(`outpost.ui.${id}`);
    assert.ok(command !== undefined, id);
    await command(...given);
  }

  paramsOf(command: CommandName): unknown[] {
    return this.asked.filter(([name]) => name === command).map(([, params]) => params);
  }
}
