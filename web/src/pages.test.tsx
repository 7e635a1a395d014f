import { render, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { MemoryRouter } from 'react-router';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { keepHalf } from './api';
import { App } from './app';
import { type Answers, serve, stream } from './testing';
import type { JobPage, LogTail, Page, Row } from './types';

const now = 1_767_225_600;

const row = (name: string, more: Partial<Row> = {}): Row => ({
  kind: 'trainjob', namespace: 'default', name, title: name, uid: `uid-${name}`, state: 'Running', group: 'running', reason: '', progress: 40,
  nodes: 2, gpus: 8, restarts: 0, queue: '', runtime: 'torch', owner: '', search: '', created: now - 60, trials: 0, ...more,
});

const page = (rows: Row[], more: Partial<Page> = {}): Page => ({
  rows, total: rows.length, before: 0, counts: { running: rows.length }, now, hidden: [], loading: [], ...more,
});

const job: JobPage = {
  kind: 'trainjob', namespace: 'default', name: 'one', uid: 'uid-one', state: 'Failed', isFinished: true, isSuspended: false,
  diagnosis: {
    state: 'Failed', reason: 'OutOfMemory', code: 'TY1130', why: 'rank 1 used more memory than it may', rank: 1,
    evidence: [{ source: 'log of rank 1', text: '<img src=x>' }], ruled_out: ['the node is well'],
    remedies: [{ text: 'give it more memory', command: 'trainyard run --memory 8Gi' }], warnings: ['a setting has no effect'],
  },
  message: '', attempt: 2, attempts: 3, restarts: 1, progress: 40, progressLine: '40%', queue: '',
  members: [{
    step: 'node-1', ranks: 'rank 1', node: 1, pod: 'one-node-0-1', host: 'laptop', attempt: 2, live: false, state: 'Failed', exitCode: 137,
    restarts: 1, started: '2026-01-01T00:00:00Z', finished: '2026-01-01T00:01:00Z', peakMemory: 1024 * 1024,
  }],
  moments: [{ time: '2026-01-01T00:01:00Z', kind: 'Ended', object: 'Pod/one-node-0-1', reason: 'exit code 137', text: 'rank 1', isWarning: true, count: 2 }],
  trials: [], search: null, parts: [], commands: [{ title: 'Explain', command: 'trainyard explain one' }], yaml: 'kind: TrainJob', now,
};

const tail: LogTail = {
  lines: [
    { time: '2026-01-01T00:00:01Z', rank: 0, step: 'node-0', attempt: 1, text: 'hello <b>', cut: 0 },
    { time: '2026-01-01T00:00:02Z', rank: 1, step: 'node-1', attempt: 1, text: 'world', cut: 3 },
    { time: '2026-01-01T00:00:03Z', rank: null, step: 'dataset-initializer', attempt: 1, text: 'done', cut: 0 },
  ],
  hasMore: true, troubles: ['no log of pod x'], attempts: 2,
};

const signedIn: Answers = {
  'GET /api/session': () => ({ body: { user: 'ann', server: 'https://127.0.0.1:6443', isLocal: true, version: '0', namespace: 'default' } }),
  'DELETE /api/session': () => ({ body: null }),
};

const show = (path: string) =>
  render(
    <MemoryRouter initialEntries={[path]}>
      <App />
    </MemoryRouter>,
  );

beforeEach(() => {
  keepHalf('half');
  vi.stubGlobal('matchMedia', () => ({ matches: false, addListener: () => {}, removeListener: () => {}, addEventListener: () => {}, removeEventListener: () => {} }));
});

describe('the table', () => {
  it('shows rows, and new ones as they come', async () => {
    const live = stream(['page', page([row('one', { reason: 'it waits for a GPU', trials: 3 })], { next: 'c', hidden: ['no right'], loading: ['mpijob'] })]);
    serve({ ...signedIn, 'GET /api/jobs/live': () => live.body });
    show('/jobs');
    const first = (await screen.findByRole('link', { name: 'one' })).closest('tr') as HTMLElement;
    expect(within(first).getByText('it waits for a GPU')).toBeDefined();
    expect(within(first).getByText('3 trials')).toBeDefined();
    expect(screen.getByText('no right')).toBeDefined();
    expect(screen.getByText(/Still reading: MPIJob/)).toBeDefined();
    live.send('page', page([row('one'), row('two', { state: 'Failed', group: 'failed' })]));
    await screen.findByRole('link', { name: 'two' });
    await userEvent.click(screen.getByRole('button', { name: /Dark theme/ }));
    expect(document.documentElement.className).toContain('pf-v6-theme-dark');
  });

  it('asks for what its address says, and changes it', async () => {
    const server = serve({ ...signedIn, 'GET /api/jobs/live': () => stream(['page', page([row('one')], { next: 'after' })]).body });
    show('/jobs?state=failed');
    await screen.findByRole('link', { name: 'one' });
    await userEvent.click(screen.getByRole('button', { name: /^running/ }));
    await userEvent.click(screen.getByRole('button', { name: 'MPIJob' }));
    await userEvent.type(screen.getByLabelText(/^Search in names/), 'abc{Enter}');
    await userEvent.click(screen.getByRole('button', { name: 'Nodes' }));
    await userEvent.click(screen.getByRole('button', { name: 'Next page' }));
    await waitFor(() => {
      const last = server.asked.filter(({ what }) => what.endsWith('live')).at(-1)?.url.searchParams;
      expect(last?.getAll('state')).toEqual(['failed', 'running']);
      expect([last?.get('kind'), last?.get('text'), last?.get('sort'), last?.get('cursor')]).toEqual(['mpijob', 'abc', 'nodes', 'after']);
    });
    await userEvent.click(screen.getByRole('button', { name: 'First page' }));
    await waitFor(() => expect(server.asked.at(-1)?.url.searchParams.has('cursor')).toBe(false));
  });

  it('says what to do where there is nothing', async () => {
    serve({ ...signedIn, 'GET /api/jobs/live': () => stream(['page', page([])]).body });
    show('/jobs');
    await screen.findByText('There are no jobs yet');
    expect(screen.getByDisplayValue('trainyard run train.py')).toBeDefined();
  });

  it('offers all jobs where a filter leaves none', async () => {
    serve({ ...signedIn, 'GET /api/jobs/live': () => stream(['page', page([])]).body });
    show('/jobs?text=x');
    await userEvent.click(await screen.findByRole('button', { name: 'Show all jobs' }));
    await screen.findByText('There are no jobs yet');
  });

  it('says before a change what will happen, and what did not', async () => {
    const outcome = (name: string, ok: boolean) => ({ kind: 'trainjob', namespace: 'default', name, ok, message: ok ? '2 pods go with it' : 'no right', command: ok ? `trainyard delete ${name}` : '' });
    const server = serve({
      ...signedIn,
      'GET /api/jobs/live': () => stream(['page', page([row('one'), row('two')])]).body,
      'POST /api/actions': () => ({ body: [outcome('one', true), outcome('two', false)] }),
    });
    show('/jobs');
    await screen.findByRole('link', { name: 'one' });
    await userEvent.click(screen.getByRole('checkbox', { name: /Select all/ }));
    await userEvent.click(screen.getByRole('button', { name: 'Actions on 2' }));
    await userEvent.click(screen.getByRole('menuitem', { name: 'Delete' }));
    const dialog = await screen.findByRole('dialog');
    await within(dialog).findByText('trainyard delete one');
    await userEvent.click(within(dialog).getByRole('button', { name: 'Delete' }));
    await within(dialog).findByText('Not all of it was done:', { exact: false });
    expect(server.asked.filter(({ what }) => what === 'POST /api/actions').map(({ body }) => (body as { dryRun: boolean }).dryRun)).toEqual([true, false]);
    await userEvent.click(within(dialog).getAllByRole('button', { name: 'Close' }).at(-1) as HTMLElement);
    await waitFor(() => expect(screen.queryByRole('dialog')).toBeNull());
  });
});

describe('a job', () => {
  const answers: Answers = {
    ...signedIn,
    'GET /api/jobs/trainjob/default/one': () => ({ body: job }),
    'GET /api/jobs/trainjob/default/one/logs': () => ({ body: tail }),
    'GET /api/jobs/live': () => stream(['page', page([])]).body,
  };

  it('says why, what to do, and what happened', async () => {
    serve(answers);
    show('/jobs/trainjob/default/one');
    await screen.findByText('rank 1 used more memory than it may');
    expect(screen.getByText('<img src=x>')).toBeDefined();
    expect(screen.getByDisplayValue('trainyard run --memory 8Gi')).toBeDefined();
    await userEvent.click(screen.getByRole('tab', { name: 'Ranks' }));
    await screen.findByText('137');
    await userEvent.click(screen.getByRole('tab', { name: 'Timeline' }));
    await screen.findByText(/Warning: exit code 137/);
    await userEvent.click(screen.getByRole('tab', { name: 'YAML' }));
    await screen.findByText('kind: TrainJob');
    await userEvent.click(screen.getByRole('tab', { name: 'Commands' }));
    await screen.findByDisplayValue('trainyard explain one');
  });

  it('shows its log, and searches it without hiding the rest', async () => {
    const found = { passages: [{ number: 4_000_000, at: 0, lines: [tail.lines[1]] }], searched: 7_000_000, hasMore: true, troubles: ['no log of pod gone'] };
    const server = serve({
      ...answers,
      'GET /api/jobs/trainjob/default/one/logs/search': () => ({ body: found }),
      'POST /api/jobs/trainjob/default/one/logs/download': () => ({ body: { address: '/api/downloads/code' } }),
    });
    show('/jobs/trainjob/default/one?tab=logs');
    await screen.findByText('hello <b>');
    await userEvent.type(screen.getByLabelText(/^Search in the log/), 'wor');
    await waitFor(() => expect(document.querySelector('mark')?.textContent).toBe('world'));
    expect(screen.getByText('hello <b>')).toBeDefined();
    expect(screen.getByText('1 / 1')).toBeDefined();
    await userEvent.click(screen.getByRole('button', { name: /next/i }));
    await userEvent.selectOptions(screen.getByLabelText('Rank'), '1');
    await userEvent.selectOptions(screen.getByLabelText('Attempt'), '2');
    await userEvent.click(screen.getByRole('button', { name: 'Show earlier lines' }));
    await waitFor(() => expect(server.asked.at(-1)?.url.search).toBe('?attempt=2&lines=10000&rank=1'));
    await userEvent.click(screen.getByRole('button', { name: 'Download all lines' }));
    await waitFor(() => expect(server.asked.at(-1)?.what).toBe('POST /api/jobs/trainjob/default/one/logs/download'));
    expect(server.asked.at(-1)?.url.search).toBe('?attempt=2&rank=1');
    await userEvent.click(screen.getByRole('button', { name: 'Search all lines' }));
    expect(await screen.findByText('1 line of 7000000 found; there may be more')).toBeDefined();
    expect(screen.getByText('line 4000000')).toBeDefined();
    expect(screen.getByText('no log of pod gone')).toBeDefined();
    expect(server.asked.at(-1)?.url.searchParams.get('pattern')).toBe('wor');
    await userEvent.click(screen.getByRole('button', { name: 'Close' }));
    expect(screen.queryByText('line 4000000')).toBeNull();
  });

  it('follows new lines', async () => {
    const live = stream();
    serve({
      ...answers,
      'GET /api/jobs/trainjob/default/two/logs': () => ({ body: tail }),
      'GET /api/jobs/trainjob/default/two': () => ({ body: { ...job, isFinished: false, state: 'Running' } }),
      'GET /api/jobs/trainjob/default/two/logs/live': () => live.body,
    });
    show('/jobs/trainjob/default/two?tab=logs');
    await screen.findByText('hello <b>');
    live.send('lines', [{ time: '2026-01-01T00:00:09Z', rank: 0, step: 'node-0', attempt: 1, text: 'fresh', cut: 0 }]);
    live.send('note', 'no rank has written for a minute');
    await screen.findByText('fresh');
    await screen.findByText('no rank has written for a minute');
    await userEvent.click(screen.getByRole('switch', { name: 'Follow' }));
  });

  it('of a search shows its trials, and no value of one that failed', async () => {
    const trials = [
      { name: 'one-1', state: 'Complete', value: '0.5', parameters: [{ name: 'lr', value: '0.1' }], best: true },
      { name: 'one-2', state: 'Failed', value: '0.9', parameters: [{ name: 'lr', value: '0.2' }], best: false },
    ];
    serve({ ...answers, 'GET /api/jobs/optimizationjob/default/one': () => ({ body: { ...job, kind: 'optimizationjob', diagnosis: null, message: 'goes on', trials, search: { metric: 'loss', direction: 'Minimize', best: [] } } }) });
    show('/jobs/optimizationjob/default/one?tab=trials');
    await screen.findByText('0.5');
    expect(screen.queryByText('0.9')).toBeNull();
    expect(screen.getByText('best')).toBeDefined();
  });

  it('is deleted after the question', async () => {
    const server = serve({ ...answers, 'POST /api/actions': () => ({ body: [{ kind: 'trainjob', namespace: 'default', name: 'one', ok: true, message: 'gone', command: '' }] }) });
    show('/jobs/trainjob/default/one');
    await userEvent.click(await screen.findByRole('button', { name: 'Delete' }));
    const dialog = await screen.findByRole('dialog');
    await within(dialog).findByText(/gone/);
    await userEvent.click(within(dialog).getByRole('button', { name: 'Delete' }));
    await screen.findByText('There are no jobs yet');
    expect(server.asked.filter(({ what }) => what === 'POST /api/actions')).toHaveLength(2);
  });

  it('that is not there is said so', async () => {
    serve(signedIn);
    show('/jobs/trainjob/default/none');
    await screen.findByText(/nothing at GET/);
    show('/nowhere');
    await screen.findByText('There is no such page');
  });
});

describe('signing in', () => {
  it('works with a token, and says why not', async () => {
    localStorage.clear();
    let isFirst = true;
    serve({
      ...signedIn,
      'POST /api/session': () => {
        const answer = isFirst ? { status: 401, body: { reason: 'signedOut', message: 'the API server does not accept this token' } } : { body: { user: 'ann', half: 'h' } };
        isFirst = false;
        return answer;
      },
      'GET /api/jobs/live': () => stream(['page', page([row('one')])]).body,
    });
    show('/jobs');
    await userEvent.type(await screen.findByLabelText(/Token/), 'secret{Enter}');
    await screen.findByText('the API server does not accept this token');
    await userEvent.click(screen.getByRole('button', { name: 'Sign in' }));
    await screen.findByRole('link', { name: 'one' });
    expect(localStorage.getItem('trainyard-session')).toBe('h');
    await userEvent.click(screen.getByRole('button', { name: 'Sign out' }));
    await screen.findByText('Sign in to Trainyard');
    expect(localStorage.getItem('trainyard-session')).toBeNull();
  });

  it('again keeps the page behind the form', async () => {
    let isOut = false;
    serve({
      ...signedIn,
      'GET /api/jobs/trainjob/default/one': () => (isOut ? { status: 401, body: { reason: 'signedOut', message: 'over' } } : { body: { ...job, isFinished: false } }),
      'POST /api/session': () => {
        isOut = false;
        return { body: { user: 'ann', half: 'h' } };
      },
    });
    show('/jobs/trainjob/default/one');
    await screen.findByText('rank 1 used more memory than it may');
    isOut = true;
    await screen.findByText('Your session has ended', {}, { timeout: 5000 });
    await userEvent.type(screen.getByLabelText(/Token/), 'secret{Enter}');
    await waitFor(() => expect(screen.queryByText('Your session has ended')).toBeNull());
    expect(screen.getByText('rank 1 used more memory than it may')).toBeDefined();
  });
});
