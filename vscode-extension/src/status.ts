/**
 * One item in the status bar: what the server does, how many runs there are, what today cost; and what a question waits
 * for. And one language status: the model and the routing in force.
 */

import {
  languages,
  LanguageStatusSeverity,
  MarkdownString,
  StatusBarAlignment,
  ThemeColor,
  window,
  type LanguageStatusItem,
  type StatusBarItem,
} from "vscode";

import type { AgentEntry, RouteNews } from "./protocol";
import type { RunStore } from "./runs/store";
import type { State } from "./server/life";
import * as text from "./text";

export class Status {
  private readonly bar: StatusBarItem;
  private readonly language: LanguageStatusItem;
  private state: State = { kind: "stopped" };
  private questions = 0;
  private setup = "";
  private reviewer: AgentEntry | undefined;
  private lastRoute: RouteNews | undefined;

  constructor(private readonly runs: RunStore) {
    this.bar = window.createStatusBarItem("outpost.status", StatusBarAlignment.Left, 0);
    this.bar.name = "Outpost";
    this.language = languages.createLanguageStatusItem("outpost.model", { scheme: "file" });
    this.language.name = "Outpost";
    this.language.command = { command: "outpost.ui.menu", title: "Outpost…" };
    this.update();
    this.bar.show();
  }

  serverIs(state: State): void {
    this.state = state;
    this.update();
  }

  /** What an installation is doing; `""` when there is none. */
  settingUp(message: string): void {
    this.setup = message;
    this.update();
  }

  waitingQuestions(count: number): void {
    this.questions = count;
    this.update();
  }

  agents(entries: readonly AgentEntry[], reviewer: string): void {
    this.reviewer = entries.find(({ name }) => name === reviewer) ?? entries[0];
    this.update();
  }

  routed(route: RouteNews): void {
    this.lastRoute = route;
    this.updateLanguage();
  }

  update(): void {
    const { label, tooltip, command, isUrgent } = this.describe();
    this.bar.text = label;
    this.bar.tooltip = tooltip;
    this.bar.command = command;
    this.bar.backgroundColor = isUrgent ? new ThemeColor("statusBarItem.warningBackground") : undefined;
    this.bar.accessibilityInformation = { label: label.replace(/\$\([^)]*\)\s*/gu, "") };
    this.updateLanguage();
  }

  dispose(): void {
    this.bar.dispose();
    this.language.dispose();
  }

  private describe(): { label: string; tooltip: MarkdownString | string; command: string; isUrgent: boolean } {
    if (this.questions > 0) {
      const label = `$(question) Outpost: ${text.plural(this.questions, "question")}`;
      return {
        label,
        tooltip: "An agent waits for a permission.",
        command: "outpost.ui.answerQuestion",
        isUrgent: true,
      };
    }
    if (this.setup !== "") {
      return {
        label: `$(loading~spin) Outpost: ${this.setup}`,
        tooltip: this.setup,
        command: "outpost.ui.showLog",
        isUrgent: false,
      };
    }
    const plain = { command: "outpost.ui.menu", isUrgent: false };
    switch (this.state.kind) {
      case "missing":
        return {
          label: "$(circle-slash) Outpost: set up",
          tooltip: "The Outpost server is not installed.",
          command: "outpost.ui.setUp",
          isUrgent: false,
        };
      case "failed":
        return {
          label: "$(error) Outpost: stopped",
          tooltip: this.state.reason,
          command: "outpost.ui.restart",
          isUrgent: true,
        };
      case "restarting":
        return { ...plain, label: "$(loading~spin) Outpost: restarting", tooltip: this.state.reason };
      case "starting":
        return { ...plain, label: "$(loading~spin) Outpost", tooltip: "Starting" };
      case "stopped":
        return { ...plain, label: "$(circle-outline) Outpost", tooltip: "Not running" };
      case "running":
        return { ...plain, label: this.label(), tooltip: this.tooltip() };
    }
  }

  private label(): string {
    const live = this.runs.live().length;
    const { usage } = this.runs.today(new Date());
    const used = usage.input + usage.output > 0 ? [text.tokens(usage), ...this.costs()] : [];
    const doing = live === 0 ? "idle" : `${String(live)} running`;
    return [`${live === 0 ? "$(telescope)" : "$(sync~spin)"} Outpost: ${doing}`, ...used].join(" · ");
  }

  private tooltip(): MarkdownString {
    const tip = new MarkdownString();
    const { usage } = this.runs.today(new Date());
    tip.appendMarkdown("**Outpost**\n\n");
    for (const { run } of this.runs.live()) {
      tip.appendText(`${text.oneLine(run.title, 80)}: ${text.status(run)}`);
      tip.appendMarkdown("\n\n");
    }
    tip.appendText(["Today", text.tokensInFull(usage), ...this.costs()].join(" · "));
    return tip;
  }

  private costs(): string[] {
    return [...this.runs.today(new Date()).costs].map(([currency, cost]) => text.money({ currency, ...cost }));
  }

  private updateLanguage(): void {
    const isRunning = this.state.kind === "running";
    const { model, routing } = this.reviewer ?? {};
    this.language.busy = this.state.kind === "starting" || this.state.kind === "restarting";
    this.language.severity =
      this.state.kind === "failed" ? LanguageStatusSeverity.Error : LanguageStatusSeverity.Information;
    this.language.text = isRunning && model !== undefined ? `Outpost: ${model}` : "Outpost";
    const said = [
      ...(routing === undefined ? ["no routing"] : [`routing ${routing}`]),
      ...(this.lastRoute === undefined ? [] : [`last: ${text.route(this.lastRoute)}`]),
    ];
    this.language.detail = isRunning ? said.join(" · ") : this.state.kind;
  }
}
