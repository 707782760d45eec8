// Runs one piece of code: reads {code, inputs, module} as JSON from standard input, and writes to
// descriptor 3 a line of JSON for what happened last: {value, text} or {error}.
"use strict";
const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");
const util = require("node:util");
const { createRequire } = require("node:module");
const { pathToFileURL } = require("node:url");

const given = JSON.parse(fs.readFileSync(0, "utf8"));
const file = path.join(process.cwd(), given.module ? `.flowengine-${process.pid}.mjs` : "code.js");
const shown = given.module ? "code.mjs" : "code.js";

function decode(value) {
  if (Array.isArray(value)) return value.map(decode);
  if (value === null || typeof value !== "object") return value;
  if ("$bytes" in value) return Buffer.from(value.$bytes, "base64");
  const entries = value.$map ?? Object.entries(value);
  return Object.fromEntries(entries.map(([key, item]) => [key, decode(item)]));
}

function encode(value) {
  if (value instanceof Uint8Array) return { $bytes: Buffer.from(value).toString("base64") };
  if (typeof value === "bigint" || typeof value === "function" || typeof value === "symbol") {
    throw new TypeError("no plain data");
  }
  if (value === null || typeof value !== "object") return value;
  if (typeof value.toJSON === "function") return encode(value.toJSON());
  if (Array.isArray(value)) return value.map((item) => encode(item === undefined ? null : item));
  if (value instanceof Map || value instanceof Set) throw new TypeError("no plain data");
  const entries = Object.entries(value).filter(([, item]) => item !== undefined);
  const encoded = entries.map(([key, item]) => [key, encode(item)]);
  if (encoded.some(([key]) => key.startsWith("$"))) return { $map: encoded };
  return Object.fromEntries(encoded);
}

function tell(told) {
  const line = Buffer.from(JSON.stringify(told) + "\n");
  for (let at = 0; at < line.length; ) at += fs.writeSync(3, line, at);
}

function tellValue(value) {
  if (value === undefined) return tell({});
  const text = typeof value === "string" ? value : util.inspect(value);
  const told = { text: text.slice(0, 65536) };
  try {
    const encoded = encode(value);
    if (JSON.stringify(encoded).length <= given.largest) told.value = encoded;
  } catch {
    // Not plain data: its text has to do.
  }
  tell(told);
}

function isRefusedSize(error) {
  // Errors of the system have the name of their call. Those that code makes up do not.
  for (let each = error, left = 100; each instanceof Error && left > 0; each = each.cause, left--) {
    if (each.code === "EFBIG" && each.syscall) return true;
  }
  return false;
}

function described(error, depth) {
  if (!(util.types.isNativeError(error) || error instanceof Error)) return util.inspect(error);
  const text = messageOf(error, depth);
  return text ? `${error.name}: ${text}` : String(error.name);
}

// As Python's errors are described: with the errors in an AggregateError, and with the cause, which
// has the reason of "fetch failed" and is not part of the stack.
function messageOf(error, depth = 0) {
  let text = String(error.message);
  if (depth >= 5) return text;
  if (Array.isArray(error.errors) && error.errors.length) {
    const left = error.errors.length - 10;
    const reasons = error.errors.slice(0, 10).map((each) => described(each, depth + 1));
    const all = [...reasons, ...(left > 0 ? [`and ${left} more`] : [])].join("; ");
    text = depth ? `${text} [${all}]` : `${text}: ${all}`;
  }
  if (error.cause instanceof Error) text += ` (caused by ${described(error.cause, depth + 1)})`;
  return text;
}

function fail(error) {
  const isError = util.types.isNativeError(error) || error instanceof Error;
  const stack = isError ? String(error.stack ?? error) : `Thrown: ${util.inspect(error)}`;
  const own = /^ +at .*(\[eval\]|node:internal|node:vm)/;
  const lines = stack.replaceAll(pathToFileURL(file).href, shown).replaceAll(file, shown).split("\n");
  const traceback = lines.filter((line) => !own.test(line)).join("\n");
  const place = new RegExp(shown.replace(".", "\\.") + ":(\\d+)").exec(traceback);
  process.exitCode = 1;
  fs.writeSync(2, traceback + "\n");
  tell({
    error: {
      type: isError ? String(error.name) : "Thrown",
      message: (isError ? messageOf(error) : util.inspect(error)).slice(0, 65536),
      line: place ? Number(place[1]) : null,
      traceback: traceback.slice(0, 65536),
      ...(isRefusedSize(error) && { file_is_full: true }),
    },
  });
}

function failLater(error) {
  fail(error);
  process.exit(1);
}

function placed(error) {
  // Of a module that cannot be parsed, only a fresh process tells where.
  const { spawnSync } = require("node:child_process");
  const { stderr } = spawnSync(process.execPath, ["--check", file], { encoding: "utf8" });
  return stderr.includes(path.basename(file)) ? stderr.split("\n    at ")[0] : error.stack;
}

async function runModule() {
  fs.writeFileSync(file, given.code, { flag: "wx" });
  try {
    const loaded = await import(pathToFileURL(file).href);
    return loaded.default;
  } catch (error) {
    if (error instanceof SyntaxError && !String(error.stack).includes(path.basename(file))) {
      error.stack = placed(error);
    }
    throw error;
  } finally {
    fs.rmSync(file, { force: true });
  }
}

function runScript() {
  const names = ["inputs", "require", "module", "exports", "__filename", "__dirname"];
  const options = { filename: file, lineOffset: -1 };
  const call = new vm.Script(`(async function (${names.join(", ")}) {\n${given.code}\n})`, {
    ...options,
    // Node 18 has no name for its own loader.
    importModuleDynamically:
      vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER ?? ((name) => import(name)),
  }).runInThisContext();
  const module = { exports: {} };
  return call(globalThis.inputs, createRequire(file), module, module.exports, file, process.cwd());
}

globalThis.inputs = decode(given.inputs);
process.removeAllListeners("warning"); // of Node itself, about what this runner uses
process.on("warning", (warning) => {
  if (warning.name !== "ExperimentalWarning") console.error(String(warning));
});
process.on("uncaughtException", failLater);
process.on("unhandledRejection", failLater);
try {
  (given.module ? runModule() : runScript()).then(tellValue).catch(fail);
} catch (error) {
  fail(error);
}
