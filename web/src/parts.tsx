/** Small parts that several pages share. */

import { Alert, ClipboardCopy, Label } from '@patternfly/react-core';
import { useEffect, useState } from 'react';
import type { Problem } from './api';

const colours: Record<string, 'blue' | 'green' | 'red' | 'orange' | 'grey' | 'purple'> = {
  running: 'blue',
  complete: 'green',
  failed: 'red',
  restarting: 'orange',
  recovering: 'orange',
  crashloop: 'red',
  suspended: 'grey',
  pending: 'purple',
  starting: 'purple',
};

/** A state in its own words; the colour only repeats them. */
export function State({ state, group }: { state: string; group: string }) {
  return (
    <Label color={colours[group] ?? 'grey'} variant="outline">
      {state}
    </Label>
  );
}

/** What keeps a page from being up to date. */
export function Trouble({ problem }: { problem: Problem | null }) {
  if (problem === null || problem.reason === 'signedOut') return null;
  return (
    <Alert variant={problem.reason === 'unreachable' ? 'warning' : 'danger'} isInline isLiveRegion title={problem.message}>
      {problem.reason === 'unreachable' && 'This page shows what was last known, and catches up by itself.'}
    </Alert>
  );
}

export function Command({ command, label }: { command: string; label: string }) {
  return (
    <ClipboardCopy isReadOnly isCode hoverTip="Copy" clickTip="Copied" textAriaLabel={label}>
      {command}
    </ClipboardCopy>
  );
}

/** The server's time, by its last answer and how long ago that was. The clock of this machine may be wrong. */
export function useServerTime(now: number | undefined): number {
  const [base, setBase] = useState({ now: now ?? Date.now() / 1000, at: performance.now() });
  const [, tick] = useState(0);
  useEffect(() => {
    if (now !== undefined) setBase({ now, at: performance.now() });
  }, [now]);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 5000);
    return () => clearInterval(timer);
  }, []);
  return base.now + (performance.now() - base.at) / 1000;
}
