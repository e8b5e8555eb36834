/**
 * Runs the unit tests with Node's own runner: each test file is bundled, with the editor's interface left out, and a stub
 * of it put in its place when it is loaded.
 *
 *   npm test [-- PATTERN...]   only the test files whose names hold a pattern
 */

import { spawnSync } from "node:child_process";
import { readdir, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url));
const patterns = process.argv.slice(2);
const files = (await readdir(`${root}test`)).filter(
  (name) => name.endsWith(".test.ts") && (patterns.length === 0 || patterns.some((pattern) => name.includes(pattern))),
);
/** Tests and the code under test share one stand-in for the editor: the one that `load.ts` puts in place. */
const shareStub = {
  name: "share the stub",
  setup(bundler) {
    bundler.onResolve({ filter: /stub\/editor$/ }, () => ({ path: "vscode", external: true }));
  },
};

await rm(`${root}.test-build/unit`, { recursive: true, force: true });
await build({
  absWorkingDir: root,
  entryPoints: [...files.map((name) => `test/${name}`), "test/stub/load.ts"],
  outdir: ".test-build/unit",
  outbase: "test",
  bundle: true,
  platform: "node",
  format: "cjs",
  target: "node20",
  external: ["vscode"],
  sourcemap: "inline",
  plugins: [shareStub],
  logLevel: "warning",
});
const { status } = spawnSync(
  process.execPath,
  [
    "--enable-source-maps",
    "--require",
    `${root}.test-build/unit/stub/load.js`,
    "--test",
    ...files.map((name) => `${root}.test-build/unit/${name.replace(/ts$/u, "js")}`),
  ],
  { cwd: root, stdio: "inherit" },
);
process.exitCode = status ?? 1;
