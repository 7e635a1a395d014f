/** What the server sends: `crates/dashboard`. Times without a zone are seconds since 1970; others are RFC 3339. */

export type Kind = 'trainjob' | 'mpijob' | 'optimizationjob' | 'jobset' | 'managedjob';

export const kinds: readonly Kind[] = ['trainjob', 'mpijob', 'optimizationjob', 'jobset', 'managedjob'];

export interface Who {
  user: string;
  server: string;
  isLocal: boolean;
  version: string;
  namespace: string;
}

export interface Row {
  kind: Kind;
  namespace: string;
  name: string;
  title: string;
  uid: string;
  state: string;
  /** The state without a number, in lower case. */
  group: string;
  reason: string;
  progress: number | null;
  nodes: number | null;
  gpus: number;
  restarts: number;
  queue: string;
  runtime: string;
  owner: string;
  search: string;
  created: number;
  trials: number;
}

export interface Page {
  rows: Row[];
  total: number;
  before: number;
  counts: Record<string, number>;
  next?: string;
  now: number;
  hidden: string[];
  loading: Kind[];
}

export interface Evidence {
  source: string;
  text: string;
}

export interface Remedy {
  text: string;
  command?: string | null;
}

export interface Diagnosis {
  state: string;
  reason: string;
  code: string;
  why: string;
  rank?: number | null;
  evidence: Evidence[];
  ruled_out: string[];
  remedies: Remedy[];
  warnings?: string[];
}

export interface Member {
  step: string;
  ranks: string;
  node: number | null;
  pod: string;
  host: string;
  attempt: number;
  live: boolean;
  state: string;
  exitCode: number | null;
  restarts: number;
  started: string;
  finished: string;
  peakMemory: number | null;
}

export interface Moment {
  time: string;
  kind: 'Condition' | 'Event' | 'Started' | 'Ended';
  object: string;
  reason: string;
  text: string;
  isWarning: boolean;
  count: number;
}

export interface Trial {
  name: string;
  state: string;
  value: string | null;
  parameters: { name: string; value: string }[];
  best: boolean;
}

/** What the trials of a search are judged by. */
export interface Search {
  metric: string;
  direction: string;
  /** Trials that were better than all before them. */
  best: { at: string; value: number; trial: string }[];
}

/** A field of a form: where it stands in the object, and what the server says about it. */
export interface FormField {
  label: string;
  path: string[];
  input: 'text' | 'number' | 'command';
  help: string;
  offers: string[];
}

export interface SubmitForm {
  kind: Kind;
  draft: string;
  /** What creates it in a terminal, from a file. */
  command: string;
  fields: FormField[];
}

/** An error, and the way to where it is. */
export interface Fault {
  field: string;
  path: (string | number)[];
  message: string;
}

export interface SubmitAnswer {
  ok: boolean;
  message: string;
  faults: Fault[];
  address: string;
}

/** A metric of a job over time. */
export interface Curve {
  name: string;
  /** Seconds since the job was created, and the value; null where it is no number. */
  points: [number, number | null][];
  reported: number;
  notFinite: number;
  last: number | null;
  least: number | null;
  greatest: number | null;
}

export interface SeriesOfJobs {
  jobs: { name: string; curves: Curve[]; note: string }[];
  others: string[];
}

/** A value of a table or of a list of facts. */
export type Cell =
  | { is: 'text'; text: string }
  | { is: 'number'; value: number; text: string }
  | { is: 'state'; state: string; group: string }
  | { is: 'age'; at: number | null }
  | { is: 'link'; to: string; text: string }
  | { is: 'bar'; percent: number; text: string };

/** A part of a page. */
export type Part =
  | { part: 'facts'; title: string; facts: { term: string; value: Cell }[] }
  | {
      part: 'table';
      title: string;
      headings: { title: string }[];
      rows: Cell[][];
      empty: string;
      emptyCommand: string | null;
      leftOut: number;
      isMain: boolean;
    }
  | { part: 'lines'; title: string; lines: string[] }
  | { part: 'text'; title: string; text: string }
  | { part: 'commands'; title: string; commands: { title: string; command: string }[] };

export interface Sheet {
  title: string;
  subtitle: string;
  state: Cell | null;
  parts: Part[];
  hidden: string[];
  now: number;
}

export interface JobPage {
  kind: Kind;
  namespace: string;
  name: string;
  uid: string;
  state: string;
  isFinished: boolean;
  isSuspended: boolean;
  diagnosis: Diagnosis | null;
  message: string;
  members: Member[];
  moments: Moment[];
  attempt: number;
  attempts: number;
  restarts: number;
  progress: number | null;
  progressLine: string;
  queue: string;
  trials: Trial[];
  search: Search | null;
  parts: Part[];
  commands: { title: string; command: string }[];
  yaml: string;
  now: number;
}

export interface LogLine {
  time: string;
  rank: number | null;
  step: string;
  attempt: number;
  text: string;
  cut: number;
}

export interface LogTail {
  lines: LogLine[];
  hasMore: boolean;
  troubles: string[];
  attempts: number;
}

/** What a search in all lines has found. */
export interface FoundInLog {
  /** Each line that was found, by its number and its place among the lines around it. */
  passages: { number: number; at: number; lines: LogLine[] }[];
  searched: number;
  hasMore: boolean;
  troubles: string[];
}

export type Verb = 'suspend' | 'resume' | 'delete';

/** A job as an action names it. */
export interface Meant {
  kind: Kind;
  namespace: string;
  name: string;
  uid: string;
}

export interface Outcome {
  kind: Kind;
  namespace: string;
  name: string;
  ok: boolean;
  message: string;
  command: string;
}
