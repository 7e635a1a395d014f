/** Curves and sweeps. Charts are drawn, as SVG; what they show is in tables, too. */

import { render, screen, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { describe, expect, it, vi } from 'vitest';
import { MemoryRouter } from 'react-router';
import { App } from './app';
import { keepHalf } from './api';
import { results } from './sweep';
import { type Answers, serve } from './testing';
import type { Curve, JobPage, SeriesOfJobs, Trial } from './types';

const now = 1_800_000_000;
const who = { user: 'ann', server: 'https://server', isLocal: true, version: '1', namespace: 'default' };

const job: JobPage = {
  kind: 'trainjob', namespace: 'default', name: 'one', uid: 'one', state: 'Running', isFinished: false, isSuspended: false, diagnosis: null, message: '',
  members: [], moments: [], attempt: 1, attempts: 1, restarts: 0, progress: null, progressLine: '', queue: '', trials: [], search: null, parts: [],
  commands: [], yaml: '', now,
}; // prettier-ignore

function curve(name: string, more: Partial<Curve> = {}): Curve {
  return { name, points: [[0, 1], [10, null], [20, 0.25]], reported: 3, notFinite: 1, last: 0.25, least: 0.25, greatest: 1, ...more };
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

describe('metrics', () => {
  const answer: SeriesOfJobs = { jobs: [{ name: 'one', curves: [curve('loss'), curve('acc', { notFinite: 0, last: null })], note: '' }], others: ['two', 'three'] };

  it('are curves, each with its table, and other jobs stand beside them', async () => {
    const server = show('/jobs/trainjob/default/one?tab=metrics', {
      'GET /api/jobs/trainjob/default/one': () => ({ body: job }),
      'GET /api/jobs/trainjob/default/one/series': ({ url }) => ({
        body: url.searchParams.has('with') ? { ...answer, jobs: [...answer.jobs, { name: 'two', curves: [curve('loss', { last: 0.5 })], note: 'only the last report is known' }] } : answer,
      }),
    });
    const loss = await screen.findByRole('grid', { name: 'loss' });
    expect(within(loss).getByText('3 (not finite: 1)')).toBeDefined();
    const chart = await screen.findByRole('img', { name: /^loss over time/ });
    await vi.waitFor(() => expect(chart.querySelector('svg path')).not.toBeNull());
    await userEvent.selectOptions(screen.getByLabelText('Compare with another job'), 'two');
    expect(await screen.findByText('only the last report is known')).toBeDefined();
    expect(within(screen.getByRole('grid', { name: 'loss' })).getByText('two')).toBeDefined();
    expect(server.asked.at(-1)?.url.searchParams.getAll('with')).toEqual(['two']);
    await userEvent.click(screen.getByLabelText('Logarithmic scale'));
    document.documentElement.classList.add('pf-v6-theme-dark');
    await userEvent.click(screen.getByRole('button', { name: 'Remove two' }));
    await vi.waitFor(() => expect(within(screen.getByRole('grid', { name: 'loss' })).queryByText('two')).toBeNull());
    document.documentElement.classList.remove('pf-v6-theme-dark');
  });

  it('that were never reported say how they are', async () => {
    show('/jobs/trainjob/default/one?tab=metrics', {
      'GET /api/jobs/trainjob/default/one': () => ({ body: job }),
      'GET /api/jobs/trainjob/default/one/series': () => ({ body: { jobs: [{ name: 'one', curves: [], note: '' }], others: [] } }),
    });
    expect(await screen.findByText(/has not reported metrics/)).toBeDefined();
  });

  it('that cannot be read say why', async () => {
    show('/jobs/trainjob/default/one?tab=metrics', {
      'GET /api/jobs/trainjob/default/one': () => ({ body: job }),
      'GET /api/jobs/trainjob/default/one/series': () => ({ status: 403, body: { reason: 'forbidden', message: 'you may not' } }),
    });
    expect(await screen.findByText('you may not')).toBeDefined();
  });
});

function trial(name: string, state: string, value: string | null, lr: string, best = false): Trial {
  return { name, state, value, best, parameters: [{ name: 'lr', value: lr }, { name: 'optimizer', value: 'adam' }] };
}

describe('a sweep', () => {
  const trials = [
    trial('s-0', 'Complete', '0.5', '0.1', true),
    trial('s-1', 'Failed', '0.1', '0.2'),
    trial('s-2', 'Running', '0.2', '0.3'),
    trial('s-3', 'Complete', null, '0.4'),
    trial('s-4', 'Complete', 'NaN', '0.5'),
    trial('s-5', 'Complete', '0.7', '0.01'),
  ];

  it('draws only trials that ended well', () => {
    expect(results(trials).map(({ trial: { name }, value }) => [name, value])).toEqual([['s-0', 0.5], ['s-5', 0.7]]);
  });

  it('has charts with axes to choose and one selection', async () => {
    const search = { metric: 'loss', direction: 'Minimize', best: [{ at: '2026-01-01T00:00:00Z', value: 0.5, trial: 's-0' }] };
    show('/jobs/optimizationjob/default/s?tab=trials', {
      'GET /api/jobs/optimizationjob/default/s': () => ({ body: { ...job, kind: 'optimizationjob', name: 's', trials, search } }),
    });
    const chart = await screen.findByRole('img', { name: /^Parallel coordinates/ });
    await vi.waitFor(() => expect(chart.querySelectorAll('svg path').length).toBeGreaterThan(1));
    expect(within(screen.getByRole('grid', { name: 'Best loss over time' })).getByText('s-0')).toBeDefined();
    const order = () => within(screen.getByRole('list', { name: 'Axes' })).getAllByRole('checkbox').map((box) => box.getAttribute('id'));
    const labels = () => [...document.querySelectorAll('.axes li')].map((item) => item.querySelector('label')?.textContent);
    expect(labels()).toEqual(['lr', 'optimizer', 'loss']);
    expect(order()).toHaveLength(6);
    await userEvent.click(screen.getByRole('button', { name: 'Move lr to the right' }));
    expect(labels()).toEqual(['optimizer', 'lr', 'loss']);
    await userEvent.click(screen.getByRole('checkbox', { name: 'optimizer' }));
    await userEvent.click(screen.getByRole('checkbox', { name: 'logarithmic: lr' }));
    await userEvent.selectOptions(screen.getByLabelText('Parameter'), 'optimizer');
    await userEvent.click(screen.getByLabelText('Logarithmic scale of the parameter'));
    const box = screen.getByRole('checkbox', { name: 'Choose s-0' });
    await userEvent.click(box);
    expect((box as HTMLInputElement).checked).toBe(true);
    await userEvent.click(box);
    expect((box as HTMLInputElement).checked).toBe(false);
  });
});
