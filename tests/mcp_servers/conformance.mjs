// The protocol's conformance tool, also with Node.js 20, whose `fs` lacks a function that only an
// unused command of it needs.
import { register } from "node:module";

const fs = 'export * from "node:fs"; export const globSync = undefined;';
const hooks = `export function resolve(name, context, next) {
  if (name !== "fs" || !context.parentURL?.includes("/conformance/dist/")) return next(name, context);
  return { url: "data:text/javascript,${encodeURIComponent(fs)}", shortCircuit: true };
}`;
register(`data:text/javascript,${encodeURIComponent(hooks)}`);
await import("./node_modules/@modelcontextprotocol/conformance/dist/index.js");
