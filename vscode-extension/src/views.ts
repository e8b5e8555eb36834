/** The two views in the activity bar, and when they are drawn again. */

import { commands, Disposable, window } from "vscode";

import { Coalescer } from "./coalesce";
import type { FindingStore } from "./findings/store";
import type { FindingsTree } from "./findings/tree";
import type { RunStore } from "./runs/store";
import type { RunsTree } from "./runs/tree";
import { plural } from "./text";

/** The editor draws a tree anew once nothing was told of it for 200 ms: what is told more often is never drawn. */
const DRAW_MS = 250;
const TICK_MS = 1000;

export function showFindings(store: FindingStore, tree: FindingsTree): { dispose(): unknown }[] {
  const view = window.createTreeView("outpost.findings", { treeDataProvider: tree, showCollapseAll: true });
  const draw = new Coalescer<"all">(DRAW_MS, () => {
    tree.refresh();
  });
  const label = (): void => {
    const open = store.withStatus("open").length;
    view.badge = open === 0 ? undefined : { value: open, tooltip: plural(open, "finding") };
    view.message = tree.message() ?? "";
    void commands.executeCommand("setContext", "outpost.hasFindings", store.all().length > 0);
  };
  return [
    view,
    draw,
    store.onChange(() => {
      draw.add("all");
    }),
    tree.onDidChangeTreeData(label),
  ];
}

export function showRuns(store: RunStore, tree: RunsTree): { dispose(): unknown }[] {
  const view = window.createTreeView("outpost.runs", { treeDataProvider: tree, showCollapseAll: true });
  const draw = new Coalescer<string | undefined>(DRAW_MS, (changed) => {
    const ids = changed.filter((one) => one !== undefined);
    tree.refresh(ids.length < changed.length ? undefined : ids);
  });
  const drawAll = (ids: readonly (string | undefined)[]): void => {
    for (const id of ids) {
      draw.add(id);
    }
  };
  let timer: NodeJS.Timeout | undefined;
  // The elapsed time of live runs goes on while somebody looks.
  const tick = (): void => {
    const isWanted = view.visible && store.live().length > 0;
    if (isWanted && timer === undefined) {
      timer = setInterval(() => {
        drawAll(store.live().map(({ run }) => run.id));
      }, TICK_MS);
    } else if (!isWanted) {
      clearInterval(timer);
      timer = undefined;
    }
  };
  const ticking = new Disposable(() => {
    clearInterval(timer);
  });
  return [
    view,
    draw,
    ticking,
    window.registerFileDecorationProvider(tree),
    view.onDidChangeVisibility(tick),
    store.onChange(({ ids, list }) => {
      drawAll(list ? [undefined] : ids);
      tick();
    }),
  ];
}
