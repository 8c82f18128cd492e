/** Streams that go on where they were when the connection is lost. */

import { parse } from "./json.js";
import type { Reply } from "./http.js";
import type { TaskEvent } from "./types.js";

/** Where in a stream of bytes we are. */
export class Position {
  offset = 0;
  private at = 0;

  /** An answer begins where it says, which need not be where it was asked for. */
  answered(reply: Reply): void {
    const range = /^bytes (\d+)-/.exec(reply.headers.get("content-range") ?? "");
    this.at = reply.status === 206 ? Number(range?.[1] ?? this.offset) : 0;
    this.offset = Math.max(this.offset, this.at);
  }

  /** What of it was not there before. */
  fresh(chunk: Uint8Array): Uint8Array {
    const known = this.offset - this.at;
    this.at += chunk.length;
    this.offset = Math.max(this.offset, this.at);
    return chunk.subarray(known);
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
      const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/.exec(line.replace(/\r$/, "")) ?? [];
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
