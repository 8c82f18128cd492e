// Runs the cases of clients/conformance/cases. ../../run-conformance starts it.

import { mkdtempSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Client } from "../dist/index.js";
import { parse, stringify } from "../dist/json.js";

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** The value with `$name` and `${name}` replaced, and what stands for a list or a time. */
function fill(value, known) {
  if (Array.isArray(value)) return value.map((one) => fill(one, known));
  if (isObject(value)) {
    if ("$repeat" in value) return Array(value.times).fill(value.$repeat);
    if ("$time" in value) return new Date(value.$time);
    return Object.fromEntries(Object.entries(value).map(([key, one]) => [fill(key, known), fill(one, known)]));
  }
  if (typeof value !== "string") return value;
  const [, name, index] = /^\$([a-z_]+)(?:\.(\d+))?$/.exec(value) ?? [];
  if (name in known) return index === undefined ? known[name] : known[name][index];
  return value.replace(/\$\{([a-z_]+)\}/g, (_, part) => known[part]);
}

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, sorted(value[key])]));
}

const same = (one, other) => other !== undefined && stringify(sorted(one)) === stringify(sorted(other));
const shown = (value) => (value === undefined ? "missing" : stringify(value).slice(0, 600));

const OPERATORS = {
  $any: () => undefined,
  $save: (name, have, known) => void (known[name] = have),
  $re: (pattern, have) => (typeof have === "string" && new RegExp(pattern, "u").test(have) ? undefined : `does not match ${pattern}`),
  $len: (length, have) => (have.length === length ? undefined : `has ${have.length} and not ${length}`),
  $type: (type, have) => {
    const is = { string: (one) => typeof one === "string", number: (one) => typeof one === "number", array: Array.isArray, object: isObject };
    return is[type](have) ? undefined : `is no ${type}`;
  },
  $exact: (want, have) => (same(want, have) ? undefined : `is not ${shown(want)}`),
  $contains: (wanted, have, known) => {
    let at = 0;
    for (const want of wanted) {
      while (at < have.length && problem(fill(want, known), have[at], known)) at++;
      if (at++ >= have.length) return `lacks ${shown(want)}`;
    }
    return undefined;
  },
};

/** How `have` is not what the pattern `want` says. */
function problem(want, have, known, at = "it") {
  if (isObject(want)) {
    for (const [operator, operand] of Object.entries(want)) {
      if (!(operator in OPERATORS)) continue;
      const wrong = OPERATORS[operator](operand, have, known);
      return wrong && `${at} is ${shown(have)}, which ${wrong}`;
    }
    if (!isObject(have)) return `${at} is ${shown(have)} and no object`;
    for (const [key, one] of Object.entries(want)) {
      const wrong = problem(one, have[key], known, `${at}.${key}`);
      if (wrong) return wrong;
    }
    return undefined;
  }
  const filled = fill(want, known);
  if (Array.isArray(filled)) {
    if (!Array.isArray(have) || have.length !== filled.length) return `${at} is ${shown(have)} and not ${filled.length} long`;
    for (const [n, one] of filled.entries()) {
      const wrong = problem(one, have[n], known, `${at}.${n}`);
      if (wrong) return wrong;
    }
    return undefined;
  }
  return same(filled, have) ? undefined : `${at} is ${shown(have)} and not ${shown(filled)}`;
}

/** Which of the arguments of a method are options here that are optional arguments elsewhere. */
async function invoke(client, step, args, options) {
  const more = Object.fromEntries(Object.entries(options).map(([key, value]) => [camel(key), value]));
  const method = client[camel(step.call)];
  // What stands before the options may be left out.
  const before = { submit: [undefined, {}], output: [undefined, "stdout"], files: [undefined] }[step.call] ?? [];
  const whole = Object.keys(more).length === 0 ? args : [...args, ...before.slice(args.length), more];
  const value = method.apply(client, whole);
  if (typeof value?.[Symbol.asyncIterator] !== "function") return value;
  const listed = [];
  for await (const one of value) {
    listed.push(one);
    if (step.take && !problem(step.take, one, {})) break;
  }
  return step.call === "output" ? Buffer.concat(listed) : listed;
}

const seen = (value) => (value instanceof Uint8Array ? Buffer.from(value).toString() : value === undefined ? null : value);

function failure(error) {
  const { code = error.name, status, message, details, retryAfter: retry_after, task } = error;
  return Object.fromEntries(Object.entries({ code, status, message, details, retry_after, task }).filter(([, value]) => value !== undefined));
}

/** A step that looks at files. */
function local(step) {
  if (step.write) {
    mkdirSync(dirname(step.write), { recursive: true });
    writeFileSync(step.write, step.text.repeat(step.times ?? 1));
  }
  if (step.same) {
    const [one, other] = step.same.map((path) => readFileSync(path));
    if (!one.equals(other)) return `${step.same} differ`;
  }
  if (step.link) symlinkSync(step.to, step.link);
  if (step.file) {
    const mode = (statSync(step.file).mode & 0o7777).toString(8);
    if (mode !== step.mode) return `${step.file} has mode ${mode}`;
  }
  if (step.absent && existsSync(step.absent)) return `${step.absent} is there`;
  return undefined;
}

async function runStep(client, step, known, warnings) {
  if (!step.call) return local(fill(step, known));
  warnings.length = 0;
  if (step.trace) client = client.withTraceparent(() => step.trace);
  let value;
  try {
    value = seen(await invoke(client, step, fill(step.args ?? [], known), fill(step.options ?? {}, known)));
  } catch (error) {
    if (!step.error) return `${step.call}: ${error.stack} ${error.cause ?? ""}`;
    return problem(step.error, failure(error), known, `the error of ${step.call}`);
  }
  if (step.error) return `${step.call} returns ${shown(value)} and does not fail`;
  if (step.warning && (warnings.length !== 1 || problem(step.warning, warnings[0], known))) return `${step.call} warns of ${shown(warnings)}`;
  if (step.save) known[step.save] = value;
  return "expect" in step ? problem(step.expect, value, known, step.call) : undefined;
}

async function ask(url, body) {
  const answer = await fetch(url, body === undefined ? {} : { method: "POST", body: stringify(body) });
  return parse(await answer.text());
}

async function runCase(one, known) {
  const given = fill(one.client ?? {}, known);
  const options = Object.fromEntries(Object.entries(given).map(([key, value]) => [camel(key), value]));
  const warnings = [];
  if (one.script) await ask(`${known.faults}/_script`, one.script);
  const client = new Client({
    url: one.script ? known.faults : known.dci,
    ...(one.script && { backoff: 0.02 }),
    onWarning: (warning) => warnings.push(warning),
    ...options,
  });
  for (const step of one.steps) {
    const wrong = await runStep(client, step, known, warnings);
    if (wrong) return wrong;
  }
  if (!one.requests) return undefined;
  const requests = await ask(`${known.faults}/_requests`);
  if (requests.length !== one.requests.length) return `${requests.length} requests, and not ${one.requests.length}: ${shown(requests)}`;
  for (const [n, { after, ...want }] of one.requests.entries()) {
    if (after !== undefined && requests[n].at - requests[n - 1].at < after) return `request ${n} came too early`;
    const wrong = problem(want, requests[n], known, `request ${n}`);
    if (wrong) return wrong;
  }
  return undefined;
}

const env = process.env;
const folder = mkdtempSync(join(tmpdir(), "conformance-"));
const base = { dci: env.CONFORMANCE_DCI, faults: env.CONFORMANCE_FAULTS, mongodb: env.CONFORMANCE_MONGODB, tls: env.CONFORMANCE_TLS, ca: env.CONFORMANCE_CA, token: env.CONFORMANCE_TOKEN, run: "ts", tmp: folder };
const only = process.argv.includes("-k") ? process.argv[process.argv.indexOf("-k") + 1] : "";
let passed = 0;
let failed = 0;
for (const file of readdirSync(env.CONFORMANCE_CASES).sort()) {
  for (const one of parse(readFileSync(join(env.CONFORMANCE_CASES, file), "utf8"))) {
    if ((one.stage ?? "open") !== env.CONFORMANCE_STAGE) continue;
    const variants = one.for ? one.for.map(([plugin, kind]) => ({ plugin: plugin.replace("${language}", "TypeScript"), kind })) : [undefined];
    for (const more of variants) {
      const name = more ? `${one.name} (${more.kind})` : one.name;
      if (!name.includes(only)) continue;
      const started = performance.now();
      const wrong = await runCase(one, more ? { ...base, ...more } : base);
      if (wrong) failed++;
      else passed++;
      if (wrong || process.argv.includes("-v")) console.log(`${wrong ? "FAILED" : "ok"} ${name} (${((performance.now() - started) / 1000).toFixed(1)} s) ${wrong ?? ""}`);
    }
  }
}
rmSync(folder, { recursive: true });
console.log(`typescript: ${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || (passed === 0 && only === "") ? 1 : 0;
