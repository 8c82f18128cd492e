/** JSON whose integers keep all their digits: those that a number cannot hold are a bigint. */

import { randomUUID } from "node:crypto";
import type { Json } from "./types.js";

// No text of anybody else begins so.
const MARK = `bigint:${randomUUID()}:`;
// Without strings as a whole, whose length has no limit.
const TOKENS = /"|\\.|-?\d[\d.eE+-]*/g;
const QUOTED = new RegExp(`"${MARK}(-?\\d+)"`, "g");

export function parse(text: string): Json {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  let isInString = false;
  const marked = text.replace(TOKENS, (token) => {
    if (token === '"') isInString = !isInString;
    if (isInString || !/^-?\d{16,}$/.test(token) || Number.isSafeInteger(Number(token))) return token;
    return `"${MARK}${token}"`;
  });
  return JSON.parse(marked, (_, value: Json) =>
    typeof value === "string" && value.startsWith(MARK) ? BigInt(value.slice(MARK.length)) : value,
  );
}

export function stringify(value: Json): string {
  let hasBig = false;
  const text = JSON.stringify(value, (key, one: Json) => {
    if (typeof one === "bigint") {
      hasBig = true;
      return `${MARK}${one}`;
    }
    if (typeof one === "number" && !Number.isFinite(one)) throw new TypeError(`${key} is ${one}, which JSON has no word for`);
    return one;
  });
  if (text === undefined) throw new TypeError(`${typeof value} cannot be sent as JSON`);
  return hasBig ? text.replace(QUOTED, "$1") : text;
}

/** The name of a key there, and back. */
export function snake(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

export function camel(name: string): string {
  return name.replace(/\B_(.)/g, (_, letter: string) => letter.toUpperCase());
}
