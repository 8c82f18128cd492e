/** Streams that go on where they were when the connection is lost. */

import { parse } from "./json.js";
import type { Reply } from "./http.js";
import type { TaskEvent } from "./types.js";

const NEWLINE = 10;

/** Where in a stream of bytes we are. */
export class Position {
  offset = 0;
  /** The last byte that was handed on. */
  last: number | undefined;
  private at = 0;
  private missing = 0;

  /** An answer begins where it says, which need not be where it was asked for. */
  answered(reply: Reply): void {
    const isPart = reply.status === 206;
    const begin = /^(?:bytes )?(\d+)/.exec(reply.headers.get(isPart ? "content-range" : "disbatch-from") ?? "");
    this.at = Number(begin?.[1] ?? (isPart ? this.offset : 0));
    this.missing += Math.max(0, this.at - this.offset);
    this.offset = Math.max(this.offset, this.at);
  }

  /** What of it was not there before, after a line for what is missing, as the server has it where nobody counts bytes. */
  fresh(chunk: Uint8Array): Uint8Array {
    const known = this.offset - this.at;
    this.at += chunk.length;
    this.offset = Math.max(this.offset, this.at);
    let fresh: Uint8Array = chunk.subarray(known);
    if (fresh.length > 0 && this.missing > 0) {
      const before = this.last === undefined || this.last === NEWLINE ? "" : "\n";
      fresh = Buffer.concat([Buffer.from(`${before}[${this.missing} bytes not kept]\n`), fresh]);
      this.missing = 0;
    }
    this.last = fresh.at(-1) ?? this.last;
    return fresh;
  }
}

/** Server-Sent Events, of chunks that may end anywhere. */
export class EventReader {
  private readonly decoder = new TextDecoder();
  private rest = "";
  private event = "";
  private data: string[] = [];
  private id: string | undefined;

  *feed(chunk: Uint8Array): Generator<TaskEvent> {
    const lines = (this.rest + this.decoder.decode(chunk, { stream: true })).split("\n");
    this.rest = lines.pop() ?? "";
    for (const line of lines) {
      const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/s.exec(line.replace(/\r$/, "")) ?? [];
      if (name === "event") this.event = value;
      else if (name === "data") this.data.push(value);
      else if (name === "id") this.id = value;
      else if (name === "" && value === "" && this.data.length > 0) {
        yield { event: this.event, data: parse(this.data.join("\n")), ...(this.id === undefined ? {} : { id: this.id }) };
        this.event = "";
        this.data = [];
      }
    }
  }
}
