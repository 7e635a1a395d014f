/**
 * Requests to the server. A session has two halves: a cookie, which scripts cannot read, and this one, which is kept for this address alone
 * and sent as a header.
 */

const KEY = 'trainyard-session';
const HEADER = 'x-trainyard-session';

export type Reason =
  | 'signedOut'
  | 'codeUsed'
  | 'forbidden'
  | 'notFound'
  | 'badRequest'
  | 'wrongOrigin'
  | 'unreachable'
  | 'refused';

/** A request that failed, in the server's words. */
export class Problem extends Error {
  constructor(
    readonly reason: Reason,
    message: string,
  ) {
    super(message);
  }
}

const gone = 'the control plane does not answer; if it was stopped, start it with: trainyard up -d';

let signedOut: () => void = () => {};

/** Calls this whenever an answer says that the session is over. */
export function whenSignedOut(call: () => void): void {
  signedOut = call;
}

export function half(): string {
  return localStorage.getItem(KEY) ?? '';
}

export function keepHalf(value: string): void {
  localStorage.setItem(KEY, value);
}

export function forgetHalf(): void {
  localStorage.removeItem(KEY);
}

async function problemOf(response: Response): Promise<Problem> {
  const body: unknown = await response.json().catch(() => null);
  if (typeof body === 'object' && body !== null && 'reason' in body && 'message' in body) {
    return new Problem(body.reason as Reason, String(body.message));
  }
  return new Problem('unreachable', `the server answered with status ${response.status}`);
}

async function send(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { [HEADER]: half() };
  const init: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store' };
  if (body !== undefined) {
    headers['content-type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  if (signal) init.signal = signal;
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem('unreachable', gone);
  }
  if (!response.ok) {
    const problem = await problemOf(response);
    if (problem.reason === 'signedOut') signedOut();
    throw problem;
  }
  return response;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await send('GET', path, undefined, signal)).json() as Promise<T>;
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await send('POST', path, body)).json() as Promise<T>;
}

export async function remove(path: string): Promise<void> {
  await send('DELETE', path);
}

/** An event of a stream. */
export interface StreamEvent {
  name: string;
  data: string;
}

/** The events of a text of server-sent events that are whole, and what is left of it. */
export function eventsOf(text: string): { events: StreamEvent[]; rest: string } {
  const parts = text.split('\n\n');
  const rest = parts.pop() ?? '';
  const events = parts.flatMap((part) => {
    const lines = part.split('\n');
    const field = (name: string) => lines.filter((line) => line.startsWith(`${name}: `)).map((line) => line.slice(name.length + 2));
    const data = field('data');
    const name = field('event')[0] ?? 'message';
    return data.length > 0 || field('event').length > 0 ? [{ name, data: data.join('\n') }] : [];
  });
  return { events, rest };
}

/** Reads one stream to its end. */
async function read(path: string, signal: AbortSignal, see: (event: StreamEvent) => void): Promise<void> {
  const response = await send('GET', path, undefined, signal);
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (reader) {
    const { done, value } = await reader.read();
    if (done) return;
    const { events, rest } = eventsOf(text + value);
    text = rest;
    events.forEach(see);
  }
}

/** Milliseconds before a stream that broke off is opened again, at first and at most. */
const AGAIN = 500;
const AGAIN_MAX = 5000;

export interface Watched {
  see: (event: StreamEvent) => void;
  /** Says what is wrong while nothing comes, and `null` once it does again. */
  trouble: (problem: Problem | null) => void;
  /** The stream is not opened again after this event. */
  last?: string;
}

/** Reads a stream, and opens it again whenever it breaks off. Returns what ends it. */
export function watch(path: string, { see, trouble, last }: Watched): () => void {
  const control = new AbortController();
  const { signal } = control;
  void (async () => {
    let pause = AGAIN;
    let isOver = false;
    while (!signal.aborted && !isOver) {
      try {
        await read(path, signal, (event) => {
          pause = AGAIN;
          trouble(null);
          isOver ||= event.name === last;
          see(event);
        });
      } catch (error) {
        if (signal.aborted) return;
        const problem = error instanceof Problem ? error : new Problem('unreachable', gone);
        trouble(problem);
        // what makes no sense now makes none later
        if (problem.reason !== 'unreachable' && problem.reason !== 'refused') return;
      }
      if (!isOver) await new Promise((resolve) => setTimeout(resolve, pause));
      pause = Math.min(pause * 2, AGAIN_MAX);
    }
  })();
  return () => control.abort();
}
