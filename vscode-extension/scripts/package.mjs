/**
 * Packages the extension: a small universal `.vsix`, or with `--platform` one that brings the server's wheels for the
 * platform this runs on (or the one named, as in `--platform linux-arm64`) and for every Python that the server supports.
 *
 * Both are put into `dist-packages/`. The wheels come from the package index that `pip` is configured with, while the
 * package is made; installing the package needs no network. `OUTPOST_PYTHON` names the Python to make them with; without it,
 * it is that of the project's own environment, else `python3`.
 */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdir, readFile, rm, stat } from "node:fs/promises";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const project = fileURLToPath(new URL("../..", import.meta.url));
// A system's Python may be without pip; that of the project's environment has it.
const ours = `${project}.venv/bin/python`;
const python = process.env.OUTPOST_PYTHON ?? (existsSync(ours) ? ours : "python3");

const PYTHONS = ["3.11", "3.12", "3.13", "3.14"];
/** The wheel tags that each platform of the editor takes, the most recent first. */
const TAGS = {
  "linux-x64": ["manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"],
  "linux-arm64": ["manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"],
  "darwin-x64": ["macosx_11_0_x86_64", "macosx_10_12_x86_64"],
  "darwin-arm64": ["macosx_11_0_arm64"],
};
const MOST_BYTES = { universal: 2 * 2 ** 20, platform: 40 * 2 ** 20 };

function run(program, parameters, options = {}) {
  const { status, error } = spawnSync(program, parameters, { cwd: root, stdio: "inherit", ...options });
  if (status !== 0) {
    console.error(error?.message ?? `${program} ended with status ${status}`);
    process.exit(1);
  }
}

/** The server and all that it needs, once for each Python; wheels that fit several are there once. */
async function fetchWheels(platform) {
  const wheels = `${root}bundled/wheels`;
  await rm(`${root}bundled`, { recursive: true, force: true });
  await mkdir(wheels, { recursive: true });
  const pip = ["-m", "pip", "--disable-pip-version-check"];
  run(python, [...pip, "wheel", "--quiet", "--no-deps", "--wheel-dir", wheels, project]);
  run(python, [...pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", wheels, "pip"]);
  const { version } = JSON.parse(await readFile(`${root}package.json`, "utf8"));
  for (const one of PYTHONS) {
    const target = TAGS[platform].flatMap((tag) => ["--platform", tag]);
    const pins = ["--python-version", one, "--implementation", "cp", "--only-binary=:all:"];
    run(python, [
      ...pip,
      "download",
      "--quiet",
      "--dest",
      wheels,
      "--find-links",
      wheels,
      ...target,
      ...pins,
      `outpost-lsp==${version}`,
    ]);
  }
}

async function main() {
  const at = process.argv.indexOf("--platform");
  const platform = at < 0 ? undefined : (process.argv[at + 1] ?? `${process.platform}-${process.arch}`);
  if (platform !== undefined && !(platform in TAGS)) {
    console.error(`there is no package for ${platform}; there are ${Object.keys(TAGS).join(", ")}`);
    process.exit(2);
  }
  const { name, version } = JSON.parse(await readFile(`${root}package.json`, "utf8"));
  await mkdir(`${root}dist-packages`, { recursive: true });
  const file = `${root}dist-packages/${name}-${version}${platform === undefined ? "" : `-${platform}`}.vsix`;
  if (platform !== undefined) {
    await fetchWheels(platform);
  }
  const ignore = platform === undefined ? ".vscodeignore" : ".vscodeignore-platform";
  const vsce = [
    "vsce",
    "package",
    "--no-dependencies",
    "--allow-missing-repository",
    "--ignoreFile",
    ignore,
    "--out",
    file,
  ];
  run("npx", ["--no-install", ...vsce, ...(platform === undefined ? [] : ["--target", platform])]);
  const { size } = await stat(file);
  const most = MOST_BYTES[platform === undefined ? "universal" : "platform"];
  console.log(`${file}: ${(size / 2 ** 20).toFixed(2)} MiB`);
  if (size > most) {
    console.error(`that is more than the ${most / 2 ** 20} MiB that it may be`);
    process.exit(1);
  }
}

await main();
