/**
 * The open timelines, one panel for each run. A panel follows its run by the server's notifications, sent on at most
 * four times a second, and reads the whole again when the run ends.
 */

import { randomBytes } from "node:crypto";

import { commands, Uri, ViewColumn, window, type WebviewPanel } from "vscode";

import { Coalescer } from "../coalesce";
import type { News, Subscription } from "../news";
import { isLive, type Usage } from "../protocol";
import { added } from "../runs/store";
import { failureText, type Session } from "../server/session";
import * as text from "../text";
import { headView, stepView } from "./describe";
import { TimelineModel, type ShownStep } from "./model";
import { page } from "./page";
import { ACTIONS, type FromPage, type ToPage } from "./view";

export const VIEW_TYPE = "outpost.timeline";
const UPDATE_MS = 250;

export class Timelines {
  private readonly open = new Map<string, Timeline>();

  constructor(
    private readonly extension: Uri,
    private readonly session: Session,
    private readonly news: News,
  ) {}

  async show(runId: string): Promise<void> {
    const known = this.open.get(runId);
    if (known !== undefined) {
      known.panel.reveal();
      return;
    }
    const panel = window.createWebviewPanel(VIEW_TYPE, "Timeline", ViewColumn.Active, this.options());
    await this.fill(panel, runId);
  }

  /** Fill a panel that the editor brought back after a reload. */
  async restore(panel: WebviewPanel, state: unknown): Promise<void> {
    const runId = (state as { runId?: unknown } | undefined)?.runId;
    if (typeof runId !== "string" || this.open.has(runId)) {
      panel.dispose();
      return;
    }
    panel.webview.options = this.options();
    await this.fill(panel, runId);
  }

  dispose(): void {
    for (const timeline of this.open.values()) {
      timeline.panel.dispose();
    }
  }

  private options(): { enableScripts: boolean; localResourceRoots: Uri[] } {
    return {
      enableScripts: true,
      localResourceRoots: [Uri.joinPath(this.extension, "dist"), Uri.joinPath(this.extension, "media")],
    };
  }

  private async fill(panel: WebviewPanel, runId: string): Promise<void> {
    const icon = (theme: string): Uri => Uri.joinPath(this.extension, "media", `outpost-${theme}.svg`);
    panel.iconPath = { light: icon("light"), dark: icon("dark") };
    const timeline = new Timeline(panel, runId, this.session, this.news);
    this.open.set(runId, timeline);
    panel.onDidDispose(() => {
      this.open.delete(runId);
      timeline.dispose();
    });
    panel.webview.html = page({
      cspSource: panel.webview.cspSource,
      script: panel.webview.asWebviewUri(Uri.joinPath(this.extension, "dist", "timeline.js")).toString(),
      style: panel.webview.asWebviewUri(Uri.joinPath(this.extension, "media", "timeline.css")).toString(),
      nonce: randomBytes(16).toString("base64url"),
    });
    await timeline.read();
  }
}

class Timeline {
  private model: TimelineModel | undefined;
  private isReady = false;
  private readonly coalescer = new Coalescer<string>(UPDATE_MS, () => {
    this.sendChanged();
  });
  private readonly subscriptions: { dispose(): unknown }[] = [];

  constructor(
    readonly panel: WebviewPanel,
    private readonly runId: string,
    private readonly session: Session,
    news: News,
  ) {
    this.subscriptions.push(
      panel.webview.onDidReceiveMessage((message: FromPage) => {
        this.received(message);
      }),
      ...this.follow(news),
    );
  }

  /** Read the whole timeline; the page shows what is known so far. */
  async read(): Promise<void> {
    try {
      const told = await this.session.request("outpost.show", { runId: this.runId });
      if (this.model === undefined) {
        this.model = new TimelineModel(told);
      } else {
        this.model.tell(told);
      }
      this.panel.title = text.oneLine(told.run.title, 40);
      this.sendAll();
    } catch (error) {
      void window.showErrorMessage(`Outpost: the timeline could not be read: ${failureText(error)}`);
    }
  }

  dispose(): void {
    this.coalescer.dispose();
    for (const subscription of this.subscriptions) {
      subscription.dispose();
    }
  }

  private follow(news: News): Subscription[] {
    return [
      news.on("$/outpost/run", ({ run }) => {
        if (run.id !== this.runId || this.model === undefined) {
          return;
        }
        const hasEnded = isLive(this.model.run) && !isLive(run);
        this.model.run = run;
        this.coalescer.add("run");
        if (hasEnded) {
          void this.read();
        }
      }),
      news.on("$/outpost/route", (route) => {
        this.take(route.runId, (model) => {
          model.routed(route);
        });
      }),
      news.on("$/outpost/subagent", (told) => {
        this.take(told.runId, (model) => {
          model.delegated(told, new Date().toISOString());
        });
      }),
      news.on("$/outpost/usage", ({ runId, total }) => {
        this.take(runId, (model) => {
          model.run = { ...model.run, usage: total };
        });
      }),
      news.on("$/outpost/event", ({ runId, event }) => {
        this.take(runId, (model) => {
          model.happened(event);
        });
      }),
    ];
  }

  private take(runId: string, change: (model: TimelineModel) => void): void {
    if (runId === this.runId && this.model !== undefined) {
      change(this.model);
      this.coalescer.add("steps");
    }
  }

  private received(message: FromPage): void {
    if (message.kind === "ready") {
      this.isReady = true;
      this.sendAll();
      return;
    }
    // Only these, whatever the page says.
    const action = ACTIONS.find((one) => one === message.id);
    if (action !== undefined) {
      void commands.executeCommand(`outpost.ui.${action}`, this.runId);
    }
  }

  private sendAll(): void {
    if (this.model !== undefined) {
      const steps = this.model.all();
      this.send({ kind: "all", runId: this.runId, head: this.head(this.model, steps), steps: steps.map(stepView) });
    }
  }

  private sendChanged(): void {
    if (this.model !== undefined && this.isReady) {
      const changed = this.model.takeChanged();
      this.send({ kind: "some", head: this.head(this.model, this.model.all()), steps: changed.map(stepView) });
    }
  }

  private head(model: TimelineModel, steps: readonly ShownStep[]): ReturnType<typeof headView> {
    return headView(model.run, usageByAgent(steps), Date.now(), steps.length === 0 ? model.untold : undefined);
  }

  private send(message: ToPage): void {
    if (this.isReady) {
      void this.panel.webview.postMessage(message);
    }
  }
}

/** What each agent that used anything used by itself, its children not counted, in the order in which they began. */
export function usageByAgent(steps: readonly ShownStep[]): [agent: string, tokens: string][] {
  const used = new Map<string, { who: string; usage: Usage }>();
  for (const { step, who } of steps) {
    const id = step.subagentId ?? "";
    used.set(id, { who, usage: added(used.get(id)?.usage, step.usage) });
  }
  return [...used.values()]
    .filter(({ usage }) => text.isUsed(usage))
    .map(({ who, usage }) => [who, text.tokensInFull(usage)]);
}
