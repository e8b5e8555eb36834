/** Bundles the extension and its page; `--watch` again at every change, `--production` small and without maps. */

import { context } from "esbuild";

const isProduction = process.argv.includes("--production");
const common = {
  bundle: true,
  minify: isProduction,
  sourcemap: isProduction ? false : "linked",
  legalComments: "linked",
  logLevel: "info",
};

const builds = await Promise.all([
  context({
    ...common,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.js",
    platform: "node",
    format: "cjs",
    target: "node20",
    external: ["vscode"],
    // The library's own entry for modules keeps parts out that nobody uses.
    mainFields: ["module", "main"],
  }),
  context({
    ...common,
    entryPoints: ["src/webview/timeline.ts"],
    outfile: "dist/timeline.js",
    platform: "browser",
    format: "iife",
    target: "es2022",
  }),
]);

for (const build of builds) {
  if (process.argv.includes("--watch")) {
    await build.watch();
  } else {
    await build.rebuild();
    await build.dispose();
  }
}
