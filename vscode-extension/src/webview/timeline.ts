/**
 * The timeline's page. Whatever came from a model or a file is set as text, never as markup.
 *
 * Steps are kept by key and patched in place, so that what somebody opened stays open while the run goes on.
 */

import type { CallView, FromPage, HeadView, StepView, ToPage } from "../timeline/view";

interface EditorApi {
  postMessage(message: FromPage): void;
  setState(state: { readonly runId: string }): void;
}

declare function acquireVsCodeApi(): EditorApi;

const editor = acquireVsCodeApi();
const steps = find("steps");
const shown = new Map<string, HTMLElement>();

function find(id: string): HTMLElement {
  const element = document.getElementById(id);
  if (element === null) {
    throw new Error(`the page has no ${id}`);
  }
  return element;
}

function make<K extends keyof HTMLElementTagNameMap>(tag: K, className = "", text = ""): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  if (className !== "") {
    element.className = className;
  }
  element.textContent = text;
  return element;
}

function showHead(head: HeadView): void {
  document.title = head.title;
  find("title").textContent = head.title;
  // Said again only when it changed, since a screen reader reads it aloud.
  const status = find("status");
  if (status.textContent !== head.status) {
    status.textContent = head.status;
  }
  status.classList.toggle("live", head.isLive);
  find("facts").textContent = head.facts.join(" · ");
  const error = find("error");
  error.textContent = head.error;
  error.hidden = head.error === "";
  find("notes").replaceChildren(...head.notes.map((note) => make("li", "", note)));
  showActions(head);
  const usage = find("usage");
  usage.hidden = head.usage.length < 2;
  usage.querySelector("tbody")?.replaceChildren(
    ...head.usage.map(([agent, tokens]) => {
      const row = make("tr");
      const name = make("th", "", agent);
      name.scope = "row";
      row.append(name, make("td", "", tokens));
      return row;
    }),
  );
  const answer = find("answer");
  answer.hidden = head.answer === "";
  const text = answer.querySelector("pre");
  if (text !== null) {
    text.textContent = head.answer;
  }
}

function showActions(head: HeadView): void {
  const bar = find("actions");
  const ids = head.actions.map(({ id }) => id).join(" ");
  if (bar.dataset["ids"] === ids) {
    return;
  }
  bar.dataset["ids"] = ids;
  bar.replaceChildren(
    ...head.actions.map(({ id, title }) => {
      const button = make("button", "", title);
      button.type = "button";
      button.addEventListener("click", () => {
        editor.postMessage({ kind: "action", id });
      });
      return button;
    }),
  );
}

function showStep(step: StepView): void {
  const opened = new Set<string>();
  const before = shown.get(step.key);
  for (const details of before?.querySelectorAll("details[open]") ?? []) {
    opened.add((details as HTMLElement).dataset["call"] ?? "");
  }
  const article = before ?? make("article");
  article.tabIndex = 0;
  article.className = `step depth-${String(Math.min(step.depth, 8))}`;
  const heading = make("h2", "", step.title);
  heading.id = `step-${step.key}`;
  article.setAttribute("aria-labelledby", heading.id);
  const head = make("div", "head");
  head.append(heading);
  if (step.badge !== undefined) {
    const badge = make("span", step.badge.isFallback ? "badge fallback" : "badge", step.badge.text);
    badge.title = step.badge.reason;
    head.append(badge);
  }
  article.replaceChildren(
    head,
    make("p", "facts", step.facts),
    ...step.texts.map((text) => make("pre", "text", text)),
    ...step.calls.map((call) => callElement(call, opened.has(call.id))),
    ...step.notes.map((note) => make("p", "note", note)),
  );
  if (before === undefined) {
    shown.set(step.key, article);
    steps.append(article);
  }
}

function callElement(call: CallView, isOpen: boolean): HTMLElement {
  const details = make("details", `call ${call.status}`);
  details.dataset["call"] = call.id;
  details.open = isOpen;
  const summary = make("summary");
  summary.append(make("b", "", call.name));
  if (call.status !== "ok") {
    summary.append(` ${call.status}`);
  }
  details.append(summary);
  for (const text of [call.input, call.preview]) {
    if (text !== "") {
      details.append(make("pre", "", text));
    }
  }
  return details;
}

function isAtEnd(): boolean {
  return window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 40;
}

window.addEventListener("message", ({ data }: MessageEvent<ToPage>) => {
  const follows = data.kind === "some" && data.head.isLive && isAtEnd();
  if (data.kind === "all") {
    editor.setState({ runId: data.runId });
    const told = new Set(data.steps.map(({ key }) => key));
    for (const [key, element] of shown) {
      if (!told.has(key)) {
        element.remove();
        shown.delete(key);
      }
    }
  }
  showHead(data.head);
  for (const step of data.steps) {
    showStep(step);
  }
  if (data.kind === "all") {
    // The order of the answer counts, also for what was there before.
    steps.append(...data.steps.map(({ key }) => shown.get(key)).filter((element) => element !== undefined));
  }
  if (follows) {
    window.scrollTo({ top: document.documentElement.scrollHeight });
  }
});

/** Arrow keys, Home and End walk from step to step. */
steps.addEventListener("keydown", (event) => {
  const all = [...steps.children] as HTMLElement[];
  const at = all.findIndex((element) => element.contains(document.activeElement));
  const target = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
  const next = target === undefined ? undefined : all[target];
  if (next !== undefined) {
    event.preventDefault();
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }
});

editor.postMessage({ kind: "ready" });
