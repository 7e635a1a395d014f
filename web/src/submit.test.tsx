/** The form of a new job, with a server that a test plays. The editor is a plain text field here; in Chromium it is the real one. */

import { fireEvent, render, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { MemoryRouter } from 'react-router';
import { App } from './app';
import { keepHalf } from './api';
import { commandOf, commandText, fieldOf, marksOf, read, syntaxMarks, valueOf, withValue } from './draft';
import { type Answers, serve } from './testing';
import type { Mark } from './editor';
import type { FormField, SubmitAnswer, SubmitForm } from './types';

vi.mock('./editor', () => ({
  default: ({ text, label, marks, onChange }: { text: string; label: string; marks: Mark[]; onChange: (text: string) => void }) => (
    <>
      <textarea aria-label={label} value={text} onChange={(event) => onChange(event.target.value)} />
      {marks.map((mark) => (
        <p key={mark.message}>mark: {mark.message}</p>
      ))}
    </>
  ),
}));

beforeEach(() => sessionStorage.clear());

const draft = `kind: TrainJob
metadata:
  name: my-job # its name
spec:
  trainer:
    numNodes: 1
    command: [torchrun, train.py]
`;

const field = (label: string, path: string, more: Partial<FormField> = {}): FormField => ({ label, path: path.split('.'), input: 'text', help: '', offers: [], ...more });
const name = field('Name', 'metadata.name');
const nodes = field('Nodes', 'spec.trainer.numNodes', { input: 'number', help: 'How many nodes' });
const command = field('Command', 'spec.trainer.command', { input: 'command' });
const gpus = field('GPUs', 'spec.trainer.resourcesPerNode.limits.nvidia.com/gpu', { input: 'number' });
gpus.path = ['spec', 'trainer', 'resourcesPerNode', 'limits', 'nvidia.com/gpu'];
const runtime = field('Runtime', 'spec.runtimeRef.name', { offers: ['torch', 'jax'] });

describe('a draft', () => {
  it('is changed at a field, and keeps its comments', () => {
    const changed = withValue(withValue(draft, name, 'other'), nodes, '4');
    expect(changed).toContain('name: other # its name');
    expect(changed).toContain('numNodes: 4');
    const more = withValue(changed, gpus, '8');
    expect(more).toContain('nvidia.com/gpu: 8');
    // what is empty then goes, too
    expect(withValue(more, gpus, '')).toBe(changed);
    expect(withValue(draft, nodes, 'many')).toContain('numNodes: many');
    expect(valueOf(read(draft), gpus)).toBe('');
  });

  it('has commands as one types them', () => {
    expect(valueOf(read(draft), command)).toBe('torchrun train.py');
    expect(commandOf('torchrun train.py --lr=0.1')).toEqual(['torchrun', 'train.py', '--lr=0.1']);
    expect(commandOf('cd x && python y')).toEqual(['bash', '-c', 'cd x && python y']);
    expect(commandText(['bash', '-c', 'cd x && python y'])).toBe('cd x && python y');
    expect(commandText(['echo', 'a b'])).toBe('echo "a b"');
    expect(commandText('words')).toBe('words');
    expect(withValue(draft, command, 'a | b')).toContain('command: [ bash, -c, a | b ]');
  });

  it('has its errors where the server found them', () => {
    const at = (path: (string | number)[]) => {
      const [mark] = marksOf(read(draft), [{ field: path.join('.'), path, message: 'wrong' }]);
      return draft.slice(mark?.from, mark?.to);
    };
    expect(at(['spec', 'trainer', 'numNodes'])).toBe('numNodes: 1');
    expect(at(['spec', 'trainer', 'command', 1])).toBe('train.py');
    // what is missing is marked at what would hold it
    expect(at(['spec', 'trainer', 'image', 'x'])).toBe('trainer');
    expect(at([])).toBe('');
    expect(syntaxMarks(read('a: [1'))).toHaveLength(1);
    const of = (...path: (string | number)[]) => fieldOf({ field: '', path, message: '' }, [name, nodes, command, runtime])?.label;
    expect(of('spec', 'trainer', 'command', 1)).toBe('Command');
    expect(of('spec', 'RuntimeRef')).toBe('Runtime');
    expect(of('spec', 'trainer')).toBeUndefined();
    expect(of()).toBeUndefined();
  });
});

const form: SubmitForm = { kind: 'trainjob', command: 'kubectl create -f job.yaml', draft, fields: [name, nodes, command, runtime] };
const fine: SubmitAnswer = { ok: true, message: 'the server would create TrainJob "my-job"', faults: [], address: '' };
const who = { user: 'ann', server: 'https://server', isLocal: true, version: '1', namespace: 'default' };

function show(address: string, answers: Answers) {
  keepHalf('half');
  const server = serve({ 'GET /api/session': () => ({ body: who }), 'GET /api/submit': () => ({ body: form }), ...answers });
  render(
    <MemoryRouter initialEntries={[address]}>
      <App />
    </MemoryRouter>,
  );
  return server;
}

const yaml = () => screen.findByLabelText<HTMLTextAreaElement>('The job as YAML');

describe('the page', () => {
  it('asks the server, and shows each error at its field', async () => {
    const faults = [
      { field: 'spec.trainer.numNodes', path: ['spec', 'trainer', 'numNodes'], message: 'must be 1 or more' },
      { field: 'spec.colour', path: ['spec', 'colour'], message: 'unknown field' },
    ];
    const server = show('/submit', {
      'POST /api/submit': ({ body }) => {
        const { object } = body as { object: { spec: { trainer: { numNodes: number } } } };
        return { body: object.spec.trainer.numNodes === 0 ? { ok: false, message: 'refused', faults, address: '' } : fine };
      },
    });
    expect(await screen.findByText(fine.message)).toBeDefined();
    expect(screen.getByText('How many nodes')).toBeDefined();
    fireEvent.change(screen.getByLabelText('Nodes'), { target: { value: '0' } });
    expect((await yaml()).value).toContain('numNodes: 0');
    expect(await screen.findByText('must be 1 or more')).toBeDefined();
    expect(screen.getByText('mark: spec.trainer.numNodes: must be 1 or more')).toBeDefined();
    expect(screen.getByText('spec.colour: unknown field')).toBeDefined();
    expect(server.asked.filter((one) => one.what === 'POST /api/submit').every((one) => (one.body as { dryRun: boolean }).dryRun)).toBe(true);
  });

  it('creates the job and opens its page', async () => {
    const server = show('/submit', {
      'POST /api/submit': ({ body }) => ({ body: (body as { dryRun: boolean }).dryRun ? fine : { ...fine, address: '/jobs/trainjob/default/my-job' } }),
      'GET /api/jobs/trainjob/default/my-job': () => ({ status: 404, body: { reason: 'notFound', message: 'the page of the job' } }),
    });
    fireEvent.change(await screen.findByLabelText('Name'), { target: { value: 'mine' } });
    expect(sessionStorage.length).toBe(1);
    await userEvent.click(screen.getByRole('button', { name: 'Submit' }));
    expect(await screen.findByText('the page of the job')).toBeDefined();
    expect(server.asked.find((one) => one.what === 'POST /api/submit' && !(one.body as { dryRun: boolean }).dryRun)?.body).toMatchObject({ object: { metadata: { name: 'mine' } } });
    expect(sessionStorage.length).toBe(0);
  });

  it('keeps what was typed, through errors and reloads', async () => {
    const answers: Answers = { 'POST /api/submit': () => ({ status: 502, body: { reason: 'unreachable', message: 'the API server does not answer' } }) };
    show('/submit', answers);
    fireEvent.change(await screen.findByLabelText('Name'), { target: { value: 'mine' } });
    await userEvent.click(screen.getByRole('button', { name: 'Submit' }));
    expect(await screen.findByText('the API server does not answer')).toBeDefined();
    fireEvent.change(await yaml(), { target: { value: 'a: [1' } });
    expect(await screen.findByText(/^The YAML has a syntax error/, { selector: '*' })).toBeDefined();
    expect(screen.getByRole<HTMLButtonElement>('button', { name: 'Submit' }).disabled).toBe(true);
    document.body.innerHTML = '';
    show('/submit', answers);
    expect((await yaml()).value).toBe('a: [1');
    await userEvent.click(screen.getByRole('button', { name: 'Start over' }));
    expect((await yaml()).value).toBe(draft);
    await waitFor(() => expect(sessionStorage.length).toBe(0));
  });

  it('begins with a copy of a job, or with another kind', async () => {
    const server = show('/submit?from=trainjob%2Fdefault%2Fone', { 'POST /api/submit': () => ({ body: fine }) });
    expect(await screen.findByRole('heading', { name: 'Copy of one' })).toBeDefined();
    await yaml();
    expect(server.asked.find((one) => one.what === 'GET /api/submit')?.url.searchParams.get('from')).toBe('trainjob/default/one');
    document.body.innerHTML = '';
    const other = show('/submit', { 'POST /api/submit': () => ({ body: fine }) });
    await userEvent.selectOptions(await screen.findByLabelText('Kind'), 'mpijob');
    await waitFor(() => expect(other.asked.filter((one) => one.what === 'GET /api/submit').at(-1)?.url.searchParams.get('kind')).toBe('mpijob'));
  });
});
