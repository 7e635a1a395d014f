/** A server for tests of pages: answers by path, and streams that a test writes to. */

import { afterEach, vi } from 'vitest';
import { cleanup, configure } from '@testing-library/react';

// a machine may be busy
configure({ asyncUtilTimeout: 20_000 });

afterEach(() => {
  cleanup();
  localStorage.clear();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

// jsdom lays nothing out: a list that draws only what is in sight would draw nothing
for (const [name, value] of Object.entries({ offsetHeight: 20, offsetWidth: 800, clientHeight: 600, clientWidth: 800 })) {
  Object.defineProperty(HTMLElement.prototype, name, { configurable: true, value });
}
HTMLElement.prototype.scrollTo = () => {};
globalThis.ResizeObserver = class {
  observe() {}
  unobserve() {}
  disconnect() {}
};
URL.createObjectURL = () => 'blob:test';
URL.revokeObjectURL = () => {};

type Answer = { status?: number; body: unknown } | ReadableStream<Uint8Array>;
export type Answers = Record<string, (request: { body: unknown; headers: Headers; url: URL }) => Answer>;

export interface Server {
  /** `METHOD path` of all requests so far, with their bodies. */
  asked: { what: string; body: unknown; url: URL; headers: Headers }[];
}

/** Answers `METHOD /path` as the table says; what is not in it is not found. */
export function serve(answers: Answers): Server {
  const server: Server = { asked: [] };
  vi.stubGlobal('fetch', (path: string, init: RequestInit) => {
    const url = new URL(path, 'http://127.0.0.1:1');
    const headers = new Headers(init.headers);
    const body: unknown = typeof init.body === 'string' ? JSON.parse(init.body) : undefined;
    const what = `${init.method ?? 'GET'} ${url.pathname}`;
    server.asked.push({ what, body, url, headers });
    const answer = answers[what]?.({ body, headers, url }) ?? { status: 404, body: { reason: 'notFound', message: `nothing at ${what}` } };
    if (answer instanceof ReadableStream) return Promise.resolve(new Response(answer));
    return Promise.resolve(new Response(JSON.stringify(answer.body), { status: answer.status ?? 200 }));
  });
  return server;
}

/** A stream of events that stays open, and what writes to it. */
export function stream(...first: [string, unknown][]): { body: ReadableStream<Uint8Array>; send: (name: string, data: unknown) => void; end: () => void } {
  const encoder = new TextEncoder();
  let control: ReadableStreamDefaultController<Uint8Array> | undefined;
  const send = (name: string, data: unknown) =>
    control?.enqueue(encoder.encode(`event: ${name}\ndata: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`));
  const body = new ReadableStream<Uint8Array>({
    start(given) {
      control = given;
      first.forEach(([name, data]) => send(name, data));
    },
  });
  return { body, send, end: () => control?.close() };
}
