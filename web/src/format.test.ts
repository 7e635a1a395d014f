import { describe, expect, it } from 'vitest';
import { bytes, clock, duration, jobPath } from './format';
import { matcher, merged, pieces } from './logs';
import type { LogLine } from './types';

describe('values', () => {
  it('are written as the command line writes them', () => {
    const cases: [number, string][] = [[-3, '0s'], [5, '5s'], [119, '119s'], [125, '2m5s'], [600, '10m'], [3600, '60m'], [11_000, '3h3m'], [100_000, '27h'], [200_000, '2d']];
    for (const [seconds, text] of cases) expect(duration(seconds)).toBe(text);
    expect(bytes(12)).toBe('12 B');
    expect(bytes(3 * 1024 * 1024)).toBe('3.0 MiB');
    expect(clock('not a time')).toBe('not a time');
    expect(clock('2026-01-02T03:04:05Z')).toContain('2');
    expect(jobPath({ kind: 'trainjob', namespace: 'a', name: 'b' })).toBe('/jobs/trainjob/a/b');
  });
});

const line = (time: string, text: string, rank: number | null = 0): LogLine => ({ time, rank, step: 'node-0', attempt: 1, text, cut: 0 });

describe('lines', () => {
  it('are merged once each, in the order of time', () => {
    const before = [line('1', 'a'), line('2', 'b')];
    expect(merged(before, [line('2', 'b'), line('2', 'b', 1), line('3', 'c')]).map(({ text, rank }) => `${text}${rank}`)).toEqual(['a0', 'b0', 'b1', 'c0']);
    expect(merged(before, [line('1.5', 'late')]).map(({ text }) => text)).toEqual(['a', 'late', 'b']);
    expect(merged([], [line('1', 'a')])).toHaveLength(1);
  });

  it('are pieces of text, whatever is in them', () => {
    expect(pieces('<b>x</b>')).toEqual([{ text: '<b>x</b>', className: '' }]);
    expect(pieces('\u001b[1;31mred\u001b[0m!')).toEqual([
      { text: 'red', className: 'ansi-red ansi-bold' },
      { text: '!', className: '' },
    ]);
  });

  it('are searched by an expression', () => {
    expect(matcher('')).toBeUndefined();
    expect(matcher('[')).toBeNull();
    expect(matcher('L[o]ss')?.test('the loss')).toBe(true);
  });
});
