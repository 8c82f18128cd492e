// Compiled only: the types by hand have the keys of the API's description, from which api.d.ts is generated.
import type { ArrayJob, CancelResult, EnqueueOptions, Explained, FileSet, Filter, Queue, RerunOptions, RerunResult, RetryResult, Schedule, ScheduleFields, SubmitOptions } from "disbatch";
import type { components, operations } from "./api.js";
import contract from "./inbox.schema.json" with { type: "json" };

type Schemas = components["schemas"];
type Camel<S extends string> = S extends `${infer Head}_${infer Tail}` ? `${Head}${Capitalize<Camel<Tail>>}` : S;
type Undotted<S> = S extends `.${infer Name}` ? Camel<Name> : S extends string ? Camel<S> : never;
type Dotted<T> = Extract<keyof T, `.${string}`>;
/** The keys that one has and the other lacks; `never` if there are none. */
type Difference<One, Other> = Exclude<One, Other> | Exclude<Other, One>;
type None<T extends never> = T;
type Options = (typeof contract)["properties"]["options"]["properties"];
type Taken<T> = keyof { [K in keyof T as T[K] extends { not: object } ? never : K]: T[K] };
type Known<T> = keyof { [K in keyof T as string extends K ? never : K]: T[K] };

export type Checks = [
  None<Difference<Undotted<Dotted<Schemas["NewTasks"]>>, keyof SubmitOptions>>,
  None<Difference<Undotted<Taken<Options>>, keyof EnqueueOptions>>,
  None<Exclude<Undotted<keyof Options>, keyof SubmitOptions>>,
  // `name` and `queue` are arguments of createSchedule.
  None<Difference<Undotted<keyof Schemas["ScheduleChange"]>, keyof ScheduleFields | "name" | "queue">>,
  None<Difference<Undotted<Exclude<keyof NonNullable<operations["findTasks"]["parameters"]["query"]>, ".limit" | ".after">>, keyof Filter>>,
  None<Difference<keyof Schemas["CancelResult"], keyof CancelResult>>,
  None<Difference<keyof Schemas["Rerun"], keyof RerunOptions>>,
  None<Difference<keyof Schemas["RerunResult"], keyof RerunResult>>,
  None<Difference<keyof Schemas["RerunArray"], keyof RerunOptions | "elements">>,
  None<Difference<keyof Schemas["ArrayJob"], keyof ArrayJob>>,
  None<Difference<keyof Schemas["RetryResult"], keyof RetryResult>>,
  None<Difference<keyof Schemas["Explained"], keyof Explained>>,
  None<Exclude<Known<Queue>, keyof Schemas["Queue"]>>,
  None<Exclude<Known<Schedule>, keyof Schemas["Schedule"]>>,
  None<Exclude<Known<FileSet>, keyof Schemas["FileSetVersion"]>>,
];
