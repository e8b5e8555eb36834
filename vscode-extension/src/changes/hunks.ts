/** A part of a file's changes in words: where it is, and the first line that is new or gone. */

import type { ChangedFile, Hunk } from "../protocol";

const HEADER = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@/u;

export interface HunkText {
  readonly place: string;
  readonly line: string;
}

export function hunkText(file: ChangedFile, hunk: Hunk): HunkText {
  const numbers = HEADER.exec(hunk.header);
  if (numbers === null) {
    return { place: hunk.header, line: "" };
  }
  // A count that is left out is one.
  const [oldStart, oldCount, newStart, newCount] = [1, 2, 3, 4].map((group) => Number(numbers[group] ?? 1)) as [
    number,
    number,
    number,
    number,
  ];
  const before = linesOf(file.before, oldStart, oldCount);
  const after = linesOf(file.after, newStart, newCount);
  const added = after.find((line) => line.trim() !== "" && !before.includes(line));
  const removed = before.find((line) => line.trim() !== "" && !after.includes(line));
  const line = added === undefined ? (removed === undefined ? "" : `− ${removed.trim()}`) : `+ ${added.trim()}`;
  return {
    place: newCount === 0 ? placeText(oldStart, oldCount, " removed") : placeText(newStart, newCount, ""),
    line,
  };
}

function linesOf(text: string | undefined, start: number, count: number): string[] {
  return (text ?? "").split(/\r\n|\r|\n/u).slice(Math.max(0, start - 1), Math.max(0, start - 1) + count);
}

function placeText(start: number, count: number, more: string): string {
  const last = start + Math.max(1, count) - 1;
  return start === last ? `line ${String(start)}${more}` : `lines ${String(start)} to ${String(last)}${more}`;
}
