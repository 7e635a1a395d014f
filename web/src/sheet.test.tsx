/** Pages that are drawn from values, with a server that a test plays. */

import { render, screen, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it } from 'vitest';
import { MemoryRouter } from 'react-router';
import { App } from './app';
import { keepHalf } from './api';
import { type Answers, serve } from './testing';
import type { Cell, Part, Sheet } from './types';

const now = 1_800_000_000;
const who = { user: 'ann', server: 'https://server', isLocal: true, version: '1', namespace: 'default' };

const text = (value: string): Cell => ({ is: 'text', text: value });

function table(rows: Cell[][], more: Partial<Extract<Part, { part: 'table' }>> = {}): Part {
  const headings = [{ title: 'Name' }, { title: 'Age' }, { title: 'GPUs' }];
  return { part: 'table', title: '', headings, rows, empty: 'There are none.', emptyCommand: null, leftOut: 0, isMain: true, ...more };
}

function sheet(parts: Part[], more: Partial<Sheet> = {}): Sheet {
  return { title: 'Clusters', subtitle: '', state: null, parts, hidden: [], now, ...more };
}

function show(address: string, answers: Answers) {
  keepHalf('half');
  const server = serve({ 'GET /api/session': () => ({ body: who }), ...answers });
  render(
    <MemoryRouter initialEntries={[address]}>
      <App />
    </MemoryRouter>,
  );
  return server;
}

const row: Cell[] = [{ is: 'link', to: '/clusters/default/one', text: 'one' }, { is: 'age', at: now - 90 }, { is: 'bar', percent: 50, text: '4 of 8' }];

describe('a table', () => {
  it('shows values of all kinds, and what was left out', async () => {
    show('/clusters', {
      'GET /api/sheets/clusters': () => ({
        body: sheet([table([row, [{ is: 'state', state: 'UP', group: 'running' }, { is: 'age', at: null }, { is: 'number', value: 3, text: 'three' }]], { leftOut: 7 })], {
          hidden: ['you have no right to list clusters in other'],
        }),
      }),
    });
    const link = await screen.findByRole('link', { name: 'one' });
    expect(link.getAttribute('href')).toBe('/clusters/default/one');
    expect(screen.getByText('90s ago')).toBeDefined();
    expect(screen.getByText('4 of 8')).toBeDefined();
    expect(screen.getByText('UP')).toBeDefined();
    expect(screen.getByText('three')).toBeDefined();
    expect(screen.getByText('9 rows')).toBeDefined();
    expect(screen.getByText(/Rows not shown: 7/)).toBeDefined();
    expect(screen.getByText('you have no right to list clusters in other')).toBeDefined();
    expect(document.title).toBe('Clusters · Trainyard');
  });

  it('without rows says how to get one', async () => {
    show('/clusters', { 'GET /api/sheets/clusters': () => ({ body: sheet([table([], { emptyCommand: 'trainyard sky launch' })]) }) });
    expect(await screen.findByText('There are none.')).toBeDefined();
    expect(screen.getByDisplayValue('trainyard sky launch')).toBeDefined();
  });

  it('asks the server to sort and to search', async () => {
    const server = show('/clusters', { 'GET /api/sheets/clusters': () => ({ body: sheet([table([row])]) }) });
    await userEvent.click(await screen.findByRole('button', { name: 'GPUs' }));
    await userEvent.type(screen.getByLabelText('Search in all columns'), 'one{enter}');
    await screen.findByText('1 row');
    const last = server.asked.at(-1)?.url.searchParams;
    expect([last?.get('sort'), last?.get('order'), last?.get('text')]).toEqual(['GPUs', 'asc', 'one']);
    await userEvent.click(screen.getByRole('button', { name: 'Reset' }));
    expect(server.asked.at(-1)?.url.searchParams.get('text')).toBeNull();
  });

  it('says what is wrong and keeps what it showed', async () => {
    show('/queue?order=up', { 'GET /api/sheets/queue': () => ({ status: 400, body: { reason: 'badRequest', message: 'order "up" is none of asc, desc' } }) });
    expect(await screen.findByText('order "up" is none of asc, desc')).toBeDefined();
  });
});

describe('the page of an object', () => {
  it('shows facts, tables, lines, text and commands', async () => {
    const parts: Part[] = [
      { part: 'facts', title: 'Overview', facts: [{ term: 'Why', value: text('no capacity') }] },
      table([row], { title: 'Machines', isMain: false }),
      table([], { title: 'Jobs', isMain: false }),
      { part: 'lines', title: 'Tried in vain', lines: ['aws: no quota'] },
      { part: 'text', title: 'YAML', text: 'kind: Cluster' },
      { part: 'commands', title: 'Commands', commands: [{ title: 'End it', command: 'trainyard sky down one' }] },
    ];
    show('/clusters/default/one', {
      'GET /api/sheets/clusters/default/one': () => ({ body: sheet(parts, { title: 'one', subtitle: 'Cluster in namespace default', state: { is: 'state', state: 'INIT', group: 'pending' } }) }),
    });
    expect(await screen.findByRole('heading', { level: 1, name: 'one INIT' })).toBeDefined();
    expect(screen.getByText('Cluster in namespace default')).toBeDefined();
    expect(screen.getByText('no capacity')).toBeDefined();
    expect(within(screen.getByRole('grid', { name: 'Machines' })).getByText('4 of 8')).toBeDefined();
    expect(screen.getByText('There are none.')).toBeDefined();
    expect(screen.getByText('aws: no quota')).toBeDefined();
    expect(screen.getByText('kind: Cluster')).toBeDefined();
    expect(screen.getByDisplayValue('trainyard sky down one')).toBeDefined();
    const trail = screen.getByRole('navigation', { name: 'Breadcrumb' });
    expect(within(trail).getByRole('link', { name: 'Clusters' }).getAttribute('href')).toBe('/clusters');
  });

  it('that is not there leads back to all', async () => {
    show('/budgets/default/none', {
      'GET /api/sheets/budgets/default/none': () => ({ status: 404, body: { reason: 'notFound', message: 'Budget "none" does not exist in namespace default' } }),
    });
    expect(await screen.findByRole('heading', { name: /does not exist/ })).toBeDefined();
    expect(within(document.getElementById('content') ?? document.body).getByRole('link', { name: 'Budgets' })).toBeDefined();
  });
});
