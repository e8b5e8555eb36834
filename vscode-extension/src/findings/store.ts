/**
 * The findings that the server told of, by document; and how they are ordered for people.
 *
 * The server's word is final: a publish replaces what is shown of a document, an answer to `outpost.findings` replaces
 * everything. A publish names only what is a diagnostic, so dismissed findings stay until the next answer.
 */

import { Emitter } from "../news";
import type { Finding, Severity } from "../protocol";

export const SEVERITIES: readonly Severity[] = ["error", "warning", "information", "hint"];

export interface Filter {
  readonly text: string;
  readonly severities: ReadonlySet<Severity>;
}

export const NO_FILTER: Filter = { text: "", severities: new Set(SEVERITIES) };

export function isFiltering(filter: Filter): boolean {
  return filter.text !== "" || filter.severities.size < SEVERITIES.length;
}

/** Whether a finding is one that the filter lets through: every word of the text stands somewhere in it. */
export function passes(finding: Finding, filter: Filter): boolean {
  if (!filter.severities.has(finding.severity)) {
    return false;
  }
  const words = filter.text.toLowerCase().split(/\s+/u).filter(Boolean);
  if (words.length === 0) {
    return true;
  }
  const told = [finding.title, finding.detail, finding.code, finding.agent, decoded(finding.uri)]
    .join("\n")
    .toLowerCase();
  return words.every((word) => told.includes(word));
}

export function byPlace(left: Finding, right: Finding): number {
  return (
    left.range.start.line - right.range.start.line ||
    left.range.start.character - right.range.start.character ||
    compare(left.id, right.id)
  );
}

export function bySeverity(left: Finding, right: Finding): number {
  return SEVERITIES.indexOf(left.severity) - SEVERITIES.indexOf(right.severity) || byPlace(left, right);
}

export class FindingStore {
  private byUri = new Map<string, readonly Finding[]>();
  private readonly emitter = new Emitter<undefined>();

  readonly onChange = this.emitter.on;

  publish(uri: string, findings: readonly Finding[]): void {
    const told = new Set(findings.map((finding) => finding.id));
    const kept = (this.byUri.get(uri) ?? []).filter(
      (finding) => finding.status === "dismissed" && !told.has(finding.id),
    );
    this.set(uri, [...findings, ...kept]);
    this.emitter.emit(undefined);
  }

  replaceAll(findings: readonly Finding[]): void {
    this.byUri = new Map();
    for (const finding of findings) {
      this.byUri.set(finding.uri, [...(this.byUri.get(finding.uri) ?? []), finding]);
    }
    this.emitter.emit(undefined);
  }

  /** One finding as a command answered it. */
  update(finding: Finding): void {
    const others = (this.byUri.get(finding.uri) ?? []).filter((one) => one.id !== finding.id);
    this.set(finding.uri, [...others, finding]);
    this.emitter.emit(undefined);
  }

  clear(): void {
    this.byUri.clear();
    this.emitter.emit(undefined);
  }

  get(id: string): Finding | undefined {
    return this.all().find((finding) => finding.id === id);
  }

  all(): Finding[] {
    return [...this.byUri.values()].flat();
  }

  withStatus(status: Finding["status"], filter: Filter = NO_FILTER): Finding[] {
    return this.all().filter((finding) => finding.status === status && passes(finding, filter));
  }

  private set(uri: string, findings: readonly Finding[]): void {
    if (findings.length === 0) {
      this.byUri.delete(uri);
    } else {
      this.byUri.set(uri, findings);
    }
  }
}

/** Findings in groups of one document each, documents in the order of their names. */
export function groupByFile(findings: readonly Finding[]): [uri: string, findings: Finding[]][] {
  const groups = new Map<string, Finding[]>();
  for (const finding of findings) {
    groups.set(finding.uri, [...(groups.get(finding.uri) ?? []), finding]);
  }
  return [...groups].sort(([left], [right]) => compare(left, right));
}

function compare(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

function decoded(uri: string): string {
  try {
    return decodeURIComponent(uri);
  } catch {
    return uri;
  }
}
