import { describe, expect, it, vi } from 'vitest';
import { Problem, eventsOf, get, keepHalf, post, remove, watch, whenSignedOut } from './api';
import { serve, stream } from './testing';

describe('requests', () => {
  it('carry the second half of the session', async () => {
    keepHalf('half');
    const server = serve({ 'GET /api/x': () => ({ body: { a: 1 } }), 'POST /api/y': ({ body }) => ({ body }), 'DELETE /api/z': () => ({ body: null }) });
    expect(await get('/api/x')).toEqual({ a: 1 });
    expect(await post('/api/y', { b: 2 })).toEqual({ b: 2 });
    await remove('/api/z');
    expect(server.asked.map(({ headers }) => headers.get('x-trainyard-session'))).toEqual(['half', 'half', 'half']);
  });

  it('fail in the words of the server', async () => {
    const out = vi.fn();
    whenSignedOut(out);
    serve({
      'GET /api/out': () => ({ status: 401, body: { reason: 'signedOut', message: 'you are not signed in' } }),
      'GET /api/odd': () => ({ status: 500, body: 'odd' }),
    });
    await expect(get('/api/out')).rejects.toMatchObject({ reason: 'signedOut', message: 'you are not signed in' });
    expect(out).toHaveBeenCalledTimes(1);
    await expect(get('/api/odd')).rejects.toMatchObject({ reason: 'unreachable' });
    vi.stubGlobal('fetch', () => Promise.reject(new TypeError('network')));
    await expect(get('/api/x')).rejects.toThrow('the control plane does not answer');
  });
});

describe('streams', () => {
  it('are read event by event, wherever they are cut', () => {
    const text = 'event: page\ndata: {"a":\ndata: 1}\n\n: keep alive\n\nevent: end\ndata: \n\nevent: pa';
    for (let at = 0; at <= text.length; at += 1) {
      const first = eventsOf(text.slice(0, at));
      const second = eventsOf(first.rest + text.slice(at));
      expect([...first.events, ...second.events]).toEqual([
        { name: 'page', data: '{"a":\n1}' },
        { name: 'end', data: '' },
      ]);
      expect(second.rest).toBe('event: pa');
    }
  });

  it('are opened again when they break off, until their last event', async () => {
    vi.useFakeTimers();
    const streams = [stream(['page', '1']), stream(['page', '2'], ['end', ''])];
    let count = 0;
    const server = serve({ 'GET /api/s': () => streams[count++]?.body ?? { status: 404, body: {} } });
    const seen: string[] = [];
    const end = watch('/api/s', { see: ({ name, data }) => seen.push(`${name} ${data}`), trouble: () => {}, last: 'end' });
    await vi.advanceTimersByTimeAsync(10);
    streams[0]?.end();
    await vi.advanceTimersByTimeAsync(1000);
    streams[1]?.end();
    await vi.advanceTimersByTimeAsync(60_000);
    expect(seen).toEqual(['page 1', 'page 2', 'end ']);
    expect(server.asked).toHaveLength(2);
    end();
    vi.useRealTimers();
  });

  it('say what is wrong, and give up on what makes no sense', async () => {
    vi.useFakeTimers();
    const server = serve({ 'GET /api/s': () => ({ status: 400, body: { reason: 'badRequest', message: 'no such kind' } }) });
    const troubles: (Problem | null)[] = [];
    watch('/api/s', { see: () => {}, trouble: (problem) => troubles.push(problem) });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(troubles.map((problem) => problem?.message)).toEqual(['no such kind']);
    expect(server.asked).toHaveLength(1);
    vi.useRealTimers();
  });
});
