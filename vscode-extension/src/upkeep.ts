/**
 * Keeping what is shown in step with the server: everything is read when a server begins to run, and follows its
 * notifications from then on. Nothing asks again and again.
 */

import { commands, workspace } from "vscode";

import { Coalescer } from "./coalesce";
import type { FindingStore } from "./findings/store";
import type { Messages } from "./messages";
import type { News } from "./news";
import type { Questions } from "./permissions";
import type { RunStore } from "./runs/store";
import type { Server } from "./server/control";
import { failureText } from "./server/session";
import type { Starter } from "./starter";
import type { Status } from "./status";

const READ_MS = 500;
const LISTED_RUNS = 500;

export interface Parts {
  readonly server: Server;
  readonly news: News;
  readonly findings: FindingStore;
  readonly runs: RunStore;
  readonly status: Status;
  readonly messages: Messages;
  readonly questions: Questions;
  readonly starter: Starter;
}

export class Upkeep {
  private readonly subscriptions: { dispose(): unknown }[] = [];
  private readonly readFindings = new Coalescer<"findings">(READ_MS, () => {
    void this.quietly(async () => {
      this.parts.findings.replaceAll((await this.parts.server.request("outpost.findings", {})).findings);
    });
  });
  private readonly readAgents = new Coalescer<"agents">(READ_MS, () => {
    void this.quietly(async () => {
      const { agents } = await this.parts.server.request("outpost.agents", {});
      const reviewer = workspace.getConfiguration("outpost").get<string>("review.agent") ?? "reviewer";
      this.parts.status.agents(agents, reviewer);
    });
  });

  constructor(private readonly parts: Parts) {
    this.subscriptions.push(
      this.readFindings,
      this.readAgents,
      ...this.followServer(),
      ...this.followEditor(),
      ...parts.runs.listen(parts.news),
    );
  }

  dispose(): void {
    for (const subscription of this.subscriptions) {
      subscription.dispose();
    }
  }

  private followServer(): { dispose(): unknown }[] {
    const { server, news, findings, runs, status, messages, questions, starter } = this.parts;
    return [
      server.onState((state) => {
        status.serverIs(state);
        void commands.executeCommand("setContext", "outpost.server", state.kind);
        void commands.executeCommand("setContext", "outpost.isRunning", state.kind === "running");
        if (state.kind === "running") {
          this.readAll();
        } else if (state.kind !== "starting") {
          starter.endAll();
          questions.dropAll();
        }
      }),
      news.on("$/outpost/findings", ({ uri, findings: told }) => {
        const before = findings.all().filter((finding) => finding.uri === uri);
        findings.publish(uri, told);
        const now = new Set(told.map(({ id }) => id));
        // What is no diagnostic any more was dismissed, fixed or edited away; only an answer says which.
        if (before.some(({ id, status }) => status !== "dismissed" && !now.has(id))) {
          this.readFindings.add("findings");
        }
      }),
      news.on("$/outpost/run", ({ run }) => {
        messages.runChanged(run);
      }),
      news.on("$/outpost/route", (route) => {
        status.routed(route);
      }),
      runs.onChange(() => {
        status.update();
        void commands.executeCommand("setContext", "outpost.hasLiveRuns", runs.live().length > 0);
      }),
    ];
  }

  private followEditor(): { dispose(): unknown }[] {
    const { server } = this.parts;
    return [
      workspace.onDidGrantWorkspaceTrust(() => {
        void this.quietly(() => server.request("outpost.trust", { trusted: true }));
      }),
      workspace.onDidChangeWorkspaceFolders(() => {
        void server.startQuietly();
      }),
      workspace.onDidChangeConfiguration((event) => {
        const starts = ["serverPath", "serverArguments"].some((name) => event.affectsConfiguration(`outpost.${name}`));
        if (starts) {
          void server.restart();
        } else if (event.affectsConfiguration("outpost")) {
          this.readAgents.add("agents");
        }
      }),
    ];
  }

  private readAll(): void {
    const { server, runs } = this.parts;
    this.readFindings.add("findings");
    this.readAgents.add("agents");
    void this.quietly(async () => {
      runs.replaceAll((await server.request("outpost.runs", { limit: LISTED_RUNS })).runs);
    });
  }

  /** Work that nobody asked for: its failure is logged, not shown. */
  private async quietly(work: () => Promise<unknown>): Promise<void> {
    if (!this.parts.server.isRunning) {
      return;
    }
    try {
      await work();
    } catch (error) {
      this.parts.server.log(`in the background: ${failureText(error)}`);
    }
  }
}
