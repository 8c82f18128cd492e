/** File sets: what is sent, and where it is put. */

import { createHash, randomUUID } from "node:crypto";
import { createReadStream } from "node:fs";
import { chmod, lstat, mkdir, open, readdir, realpath, rename, rm, stat, utimes } from "node:fs/promises";
import { basename, dirname, join, relative, resolve, sep } from "node:path";
import { ProtocolError } from "./errors.js";
import { type Call, segment, type Transport } from "./http.js";
import type { FileSet, Json } from "./types.js";

const CHUNK = 1024 * 1024;
const ENTRIES = 1000;

/** A folder, a file, or an object from paths in the set to files or what is in them. */
export type Source = string | Record<string, string | Uint8Array>;

interface LocalFile {
  name: string;
  content: string | Uint8Array;
}

async function localFiles(source: Source): Promise<LocalFile[]> {
  if (typeof source !== "string") return Object.entries(source).map(([name, content]) => ({ name, content }));
  if ((await stat(source)).isFile()) return [{ name: basename(source), content: source }];
  const found = await readdir(source, { recursive: true, withFileTypes: true });
  return found
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name))
    .map((path) => ({ name: relative(source, path).split(sep).join("/"), content: path }));
}

async function digest(content: string | Uint8Array): Promise<{ sha: string; size: number }> {
  const sha = createHash("sha256");
  if (typeof content !== "string") return { sha: sha.update(content).digest("hex"), size: content.length };
  let size = 0;
  for await (const chunk of createReadStream(content) as AsyncIterable<Buffer>) {
    sha.update(chunk);
    size += chunk.length;
  }
  return { sha: sha.digest("hex"), size };
}

async function* chunks(content: string | Uint8Array, numbers: number[]): AsyncGenerator<[number, Uint8Array]> {
  if (typeof content !== "string") {
    for (const n of numbers) yield [n, content.subarray(n * CHUNK, (n + 1) * CHUNK)];
    return;
  }
  const file = await open(content);
  try {
    for (const n of numbers) {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(CHUNK), 0, CHUNK, n * CHUNK);
      yield [n, buffer.subarray(0, bytesRead)];
    }
  } finally {
    await file.close();
  }
}

export async function put(transport: Transport, name: string, source: Source, options: Record<string, Json>): Promise<FileSet> {
  const files = await localFiles(source);
  // One that is opened twice and left alone goes away by itself.
  const post = (path: string, body: Json): Promise<Json> => transport.json({ method: "POST", path, body, repeatable: true });
  const version = await post(`/files/${segment(name)}`, options);
  const entries: Json[] = [];
  for (const { name: path, content } of files) {
    const { sha, size } = await digest(content);
    await putContent(transport, content, sha, size);
    const known = typeof content === "string" ? await stat(content) : undefined;
    const mode = known && (known.mode & 0o777).toString(8).padStart(3, "0");
    entries.push({ path, sha256: sha, size, ...(known && { mode, mtime: known.mtime.toISOString() }) });
  }
  for (let first = 0; first === 0 || first < entries.length; first += ENTRIES) {
    await post(`/files/versions/${version.id}/entries`, { entries: entries.slice(first, first + ENTRIES) });
  }
  return post(`/files/versions/${version.id}/commit`, {});
}

async function putContent(transport: Transport, content: string | Uint8Array, sha: string, size: number): Promise<void> {
  const path = `/files/contents/${sha}`;
  const state = await transport.json({ method: "GET", path, repeatable: true });
  if (state.done) return;
  const all = [{ first: 0, last: Math.ceil(size / CHUNK) - 1 }];
  const missing: { first: number; last: number }[] = state.length === null ? all : state.missing;
  const numbers = missing.flatMap(({ first, last }) => Array.from({ length: last - first + 1 }, (_, n) => first + n));
  for await (const [n, data] of chunks(content, numbers)) {
    await transport.send({ method: "PUT", path: `${path}/${n}`, query: { length: size }, content: data, repeatable: true });
  }
  // Reading back 10 GiB may take minutes.
  await transport.send({ method: "POST", path: `${path}/finish`, content: new Uint8Array(), repeatable: true, patience: 300 });
}

export async function versions(transport: Transport, name: string | undefined): Promise<FileSet[]> {
  if (name !== undefined) return (await transport.json({ method: "GET", path: `/files/${segment(name)}`, query: { ".limit": 1 }, repeatable: true })).versions;
  const listed: FileSet[] = [];
  for (;;) {
    const query = { ".limit": ENTRIES, ".after": listed.at(-1)?.name };
    const page: FileSet[] = await transport.json({ method: "GET", path: "/files", query, repeatable: true });
    listed.push(...page);
    if (page.length < ENTRIES) return listed;
  }
}

export async function get(transport: Transport, name: string, folder: string, options: { version?: number; prefix?: string }): Promise<FileSet> {
  let { version } = options;
  let after: string | undefined;
  await mkdir(folder, { recursive: true });
  for (;;) {
    const query = { ".version": version, ".prefix": options.prefix, ".after": after, ".limit": ENTRIES };
    const { entries, next, versions: _, ...found } = await transport.json({ method: "GET", path: `/files/${segment(name)}`, query, repeatable: true });
    for (const entry of entries) await getFile(transport, name, found.version, folder, entry);
    if (next === null) return found;
    // There may be a newer one in a moment.
    version = found.version;
    after = next;
  }
}

/** What is there of a path, as it is without symbolic links. */
async function existing(path: string): Promise<string> {
  return realpath(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
    return existing(dirname(path));
  });
}

async function getFile(transport: Transport, name: string, version: number, folder: string, entry: Json): Promise<void> {
  const parts = String(entry.path).split("/");
  if (parts.some((part) => ["", ".", ".."].includes(part) || /[\0\\]/.test(part))) {
    throw new ProtocolError(`the server names a file "${entry.path}", which is no path in a folder`);
  }
  const place = join(folder, ...parts);
  const top = await realpath(folder);
  const parent = await existing(dirname(place));
  if (parent !== top && !parent.startsWith(top.endsWith(sep) ? top : top + sep)) throw new ProtocolError(`${dirname(place)} leads out of ${resolve(folder)}`);
  await mkdir(dirname(place), { recursive: true });
  const known = await lstat(place).catch(() => undefined);
  if (known?.isFile() && known.size === entry.size && (await digest(place)).sha === entry.sha256) return;
  const path = `/files/${segment(name)}/content/${parts.map(segment).join("/")}`;
  const call: Call = { method: "GET", path, query: { ".version": version }, headers: { accept: "*/*" }, repeatable: true };
  const part = join(dirname(place), `.disbatch-${randomUUID()}`);
  await transport.again(call, async () => {
    const sha = createHash("sha256");
    const file = await open(part, "w", 0o600);
    try {
      for await (const chunk of transport.open(call, () => {})) {
        sha.update(chunk);
        await file.writeFile(chunk);
      }
      await file.close();
      if (sha.digest("hex") !== entry.sha256) throw new ProtocolError(`${entry.path}: what has come has another SHA-256 than the file set says`);
      await chmod(part, Number.parseInt(entry.mode ?? "644", 8) & 0o777);
      if (typeof entry.mtime === "string") {
        const at = new Date(entry.mtime.endsWith("Z") ? entry.mtime : `${entry.mtime}Z`);
        await utimes(part, at, at);
      }
      // Whole or not at all.
      await rename(part, place);
    } finally {
      await file.close().catch(() => {});
      await rm(part, { force: true });
    }
  });
}
