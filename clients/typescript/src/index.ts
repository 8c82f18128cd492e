export { Client, type OutputOptions, type Stream } from "./client.js";
export * from "./errors.js";
export type { Source } from "./files.js";
export type { ClientOptions } from "./http.js";
export { run, runBatch, runWarm, Task } from "./plugin.js";
export type * from "./types.js";
export { VERSION } from "./version.js";
