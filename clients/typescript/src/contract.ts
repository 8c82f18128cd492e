/** What a document of the inbox must be: `contract/inbox.schema.json`, as far as that uses JSON Schema. */

import contract from "./inbox.schema.json" with { type: "json" };
import { camel } from "./json.js";
import type { Json } from "./types.js";

interface Rule {
  $ref?: string;
  not?: object;
  description?: string;
  type?: string | string[];
  anyOf?: Rule[];
  const?: Json;
  enum?: Json[];
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  required?: string[];
  properties?: Record<string, Rule>;
}

const SCHEMA: Rule = contract;
const DEFINITIONS: Record<string, Rule> = contract.$defs;

/** Whether it is an object as JSON has them. */
export const isObject = (value: Json): boolean => Object.prototype.toString.call(value) === "[object Object]" && value._bsontype === undefined;
const isNumber = (value: Json) => typeof value === "number" || typeof value === "bigint";

const TYPES: Record<string, (value: Json) => boolean> = {
  null: (value) => value === null,
  boolean: (value) => typeof value === "boolean",
  number: isNumber,
  integer: (value) => typeof value === "bigint" || Number.isInteger(value),
  string: (value) => typeof value === "string",
  array: Array.isArray,
  object: isObject,
};

/** A value as relaxed extended JSON, as far as it is looked at. */
function plain(value: Json): Json {
  if (value instanceof Date) return { $date: value };
  switch (value?._bsontype) {
    case undefined:
      return value;
    case "ObjectId":
      return { $oid: value.toHexString() };
    case "Double":
    case "Int32":
    case "Long":
      return Number(value);
    default:
      return { [`$${value._bsontype}`]: value };
  }
}

/** How a value is not what the schema says. */
export function problem(given: Json, reference: Rule = SCHEMA, name = "the document"): string | undefined {
  const rule = reference.$ref === undefined ? reference : DEFINITIONS[reference.$ref.split("/").at(-1) ?? ""] ?? reference;
  if (rule.not) return `${name}: ${rule.description}`;
  const value = plain(given);
  if (!fits(value, rule)) return `${name} must be ${rule.description}`;
  if (!rule.properties || !isObject(value)) return undefined;
  const lacking = rule.required?.find((key) => !(key in value));
  if (lacking !== undefined) return `${lacking} is missing`;
  for (const [key, one] of Object.entries(value)) {
    const known = Object.hasOwn(rule.properties, key) ? rule.properties[key] : undefined;
    const names = Object.entries(rule.properties).flatMap(([key, { not }]) => (not ? [] : [key]));
    const wrong = known ? problem(one, known, camel(key)) : `${camel(key)} is unknown; known are ${names.map(camel).join(", ")}`;
    if (wrong !== undefined) return wrong;
  }
  return undefined;
}

function fits(value: Json, rule: Rule): boolean {
  const isWithin = (size: number | bigint, least = -Infinity, most = Infinity) => least <= size && size <= most;
  if (rule.type !== undefined && ![rule.type].flat().some((type) => TYPES[type]?.(value))) return false;
  if (rule.anyOf?.every((one) => problem(value, one) !== undefined)) return false;
  if ("const" in rule && value !== rule.const) return false;
  if (rule.enum && !rule.enum.includes(value)) return false;
  if (isNumber(value)) return isWithin(value, rule.minimum, rule.maximum);
  if (typeof value === "string") return isWithin([...value].length, rule.minLength, rule.maxLength);
  return !Array.isArray(value) || isWithin(value.length, rule.minItems, rule.maxItems);
}
