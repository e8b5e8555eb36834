/** Bundles the extension and its page; `--watch` again at every change, `--production` small and without maps. */

import { readdir, readFile, writeFile } from "node:fs/promises";

import { context } from "esbuild";

const isProduction = process.argv.includes("--production");
const common = {
  bundle: true,
  minify: isProduction,
  sourcemap: isProduction ? false : "linked",
  legalComments: "none",
  metafile: true,
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

/** The licences of the packages that the bundles hold, which ask to be passed on. */
async function writeNotices(inputs) {
  const packages = new Set(
    inputs.map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//u.exec(path)?.[1]).filter(Boolean),
  );
  const notices = [];
  for (const name of [...packages].sort()) {
    const folder = `node_modules/${name}`;
    const { version, license } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
    const file = (await readdir(folder)).find((one) => /^licen[cs]e/iu.test(one));
    if (file === undefined) {
      throw new Error(`${name} has no licence file`);
    }
    notices.push(`${name} ${version} (${license})\n\n${await readFile(`${folder}/${file}`, "utf8")}`);
  }
  await writeFile("dist/THIRD-PARTY-NOTICES.txt", notices.join(`\n${"-".repeat(80)}\n\n`));
}

if (process.argv.includes("--watch")) {
  await Promise.all(builds.map((build) => build.watch()));
} else {
  const results = await Promise.all(builds.map((build) => build.rebuild()));
  await Promise.all(builds.map((build) => build.dispose()));
  await writeNotices(results.flatMap(({ metafile }) => Object.keys(metafile.inputs)));
}
