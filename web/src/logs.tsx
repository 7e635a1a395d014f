/** The log of a job: all ranks and attempts merged by time; a search that keeps its context; new lines as they come. */

import {
  Alert,
  Button,
  Card,
  CardBody,
  CardHeader,
  CardTitle,
  FormSelect,
  FormSelectOption,
  SearchInput,
  Spinner,
  Switch,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from '@patternfly/react-core';
import { useVirtualizer } from '@tanstack/react-virtual';
import Anser from 'anser';
import { useCallback, useEffect, useMemo, useRef, useState } from 'react';
import { Problem, get, post, watch } from './api';
import type { FoundInLog, LogLine, LogTail } from './types';

/** Lines that the page keeps of a log that is followed. */
const KEPT = 50_000;
/** How many lines are asked for at first, and with "Show more". */
const FIRST = 1000;
const MORE = 10_000;

/** A line in pieces of one colour each. Text of others never becomes markup: each piece is a text node. */
export function pieces(text: string): { text: string; className: string }[] {
  return Anser.ansiToJson(text, { use_classes: true, remove_empty: true }).map((piece) => ({
    text: piece.content,
    className: [piece.fg ? `ansi-${piece.fg.replace('ansi-bright-', '').replace('ansi-', '')}` : '', piece.decorations.includes('bold') ? 'ansi-bold' : '']
      .filter((name) => name !== '')
      .join(' '),
  }));
}

/** What a search finds; `null` where the expression is none. */
export function matcher(text: string): RegExp | null | undefined {
  if (text === '') return undefined;
  try {
    return new RegExp(text, 'i');
  } catch {
    return null;
  }
}

function Line({ line, isFound }: { line: LogLine; isFound: boolean }) {
  const who = line.rank === null ? line.step : `rank ${line.rank}`;
  const text = pieces(line.text).map((piece, index) => (
    <span key={index} className={piece.className}>
      {piece.text}
    </span>
  ));
  return (
    <div className="log-line">
      <span className="who" title={line.time}>
        {who}
      </span>
      <span>
        {isFound ? <mark>{text}</mark> : text}
        {line.cut > 0 && ` … ${line.cut} more characters`}
      </span>
    </div>
  );
}

interface Asked {
  path: string;
  isFinished: boolean;
  canFollow: boolean;
}

export function LogTab({ path, isFinished, canFollow }: Asked) {
  const [lines, setLines] = useState<LogLine[] | null>(null);
  const [tail, setTail] = useState<LogTail | null>(null);
  const [notes, setNotes] = useState<string[]>([]);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [rank, setRank] = useState('');
  const [attempt, setAttempt] = useState('all');
  const [most, setMost] = useState(FIRST);
  const [search, setSearch] = useState('');
  const [at, setAt] = useState(0);
  const [follows, setFollows] = useState(!isFinished && canFollow);
  const [ranks, setRanks] = useState<number[]>([]);
  const box = useRef<HTMLDivElement>(null);

  const query = useMemo(() => {
    const parameters = new URLSearchParams({ attempt, lines: String(most) });
    if (rank !== '') parameters.set('rank', rank);
    return parameters.toString();
  }, [attempt, most, rank]);

  const load = useCallback(
    async (signal: AbortSignal) => {
      const next = await get<LogTail>(`/api${path}/logs?${query}`, signal);
      setTail(next);
      setLines(next.lines);
      setRanks((known) => [...new Set([...known, ...next.lines.flatMap((line) => (line.rank === null ? [] : [line.rank]))])].sort((a, b) => a - b));
      return next;
    },
    [path, query],
  );

  useEffect(() => {
    const control = new AbortController();
    setProblem(null);
    setNotes([]);
    load(control.signal).catch((error: unknown) => {
      if (!control.signal.aborted) setProblem(error instanceof Problem ? error : new Problem('refused', String(error)));
    });
    return () => control.abort();
  }, [load]);

  // new lines are those that are not among the last ones
  const has = tail !== null;
  useEffect(() => {
    if (!follows || !has) return undefined;
    const parameters = rank === '' ? '' : `?rank=${rank}`;
    return watch(`/api${path}/logs/live${parameters}`, {
      see: ({ name, data }) => {
        if (name === 'lines') {
          const more = JSON.parse(data) as LogLine[];
          setLines((before) => merged(before ?? [], more));
        } else if (name === 'note') {
          setNotes((before) => [...before.slice(-4), data]);
        }
      },
      trouble: setProblem,
      last: 'end',
    });
  }, [follows, has, path, rank]);

  const expression = useMemo(() => matcher(search), [search]);
  const shown = lines ?? [];
  const found = useMemo(
    () => (expression ? shown.flatMap((line, index) => (expression.test(line.text) ? [index] : [])) : []),
    [expression, shown],
  );
  const isFound = useMemo(() => new Set(found), [found]);

  const virtual = useVirtualizer({
    count: shown.length,
    getScrollElement: () => box.current,
    estimateSize: () => 20,
    overscan: 30,
  });

  // the newest line stays in sight while it is followed, or at first
  const count = shown.length;
  useEffect(() => {
    if (count > 0 && search === '') virtual.scrollToIndex(count - 1, { align: 'end' });
    // only a new line moves it
    // eslint-disable-next-line
  }, [count]);

  const jump = (to: number) => {
    if (found.length === 0) return;
    const next = (to + found.length) % found.length;
    setAt(next);
    virtual.scrollToIndex(found[next] ?? 0, { align: 'center' });
  };

  const failed = (error: unknown) => setProblem(error instanceof Problem ? error : new Problem('refused', String(error)));
  const chosen = () => {
    const parameters = new URLSearchParams({ attempt });
    if (rank !== '') parameters.set('rank', rank);
    return parameters;
  };

  // the browser reads the file by itself, so its length does not matter
  const download = () => {
    post<{ address: string }>(`/api${path}/logs/download?${chosen().toString()}`, null).then(({ address }) => {
      const link = document.createElement('a');
      link.href = address;
      link.download = '';
      link.click();
    }, failed);
  };

  const [whole, setWhole] = useState<FoundInLog | 'searching' | null>(null);
  const searchAll = () => {
    const parameters = chosen();
    parameters.set('pattern', search);
    setWhole('searching');
    get<FoundInLog>(`/api${path}/logs/search?${parameters.toString()}`).then(
      (found) => {
        setProblem(null);
        setWhole(found);
      },
      (error: unknown) => {
        setWhole(null);
        failed(error);
      },
    );
  };

  return (
    <>
      {problem !== null && problem.reason !== 'signedOut' && <Alert variant="warning" isInline isLiveRegion title={problem.message} />}
      {tail?.troubles.map((line) => <Alert key={line} variant="warning" isInline title={line} />)}
      {notes.map((note, index) => (
        <Alert key={index} variant="info" isInline title={note} />
      ))}
      <Toolbar>
        <ToolbarContent>
          <ToolbarItem>
            <SearchInput
              aria-label="Search in the log, a regular expression"
              placeholder="Search (regular expression)"
              value={search}
              onChange={(_event, value) => {
                setSearch(value);
                setAt(0);
              }}
              onSearch={() => jump(at)}
              onClear={() => setSearch('')}
              onNextClick={() => jump(at + 1)}
              onPreviousClick={() => jump(at - 1)}
              resultsCount={expression === null ? 'no expression' : search === '' ? '' : found.length === 0 ? '0 / 0' : `${at + 1} / ${found.length}`}
            />
          </ToolbarItem>
          <ToolbarItem>
            <FormSelect aria-label="Rank" value={rank} onChange={(_event, value) => setRank(value)}>
              <FormSelectOption value="" label="All ranks" />
              {ranks.map((number) => (
                <FormSelectOption key={number} value={String(number)} label={`Rank ${number}`} />
              ))}
            </FormSelect>
          </ToolbarItem>
          {(tail?.attempts ?? 0) > 1 && (
            <ToolbarItem>
              <FormSelect aria-label="Attempt" value={attempt} onChange={(_event, value) => setAttempt(value)}>
                <FormSelectOption value="all" label="All attempts" />
                {Array.from({ length: tail?.attempts ?? 0 }, (_, index) => (
                  <FormSelectOption key={index} value={String(index + 1)} label={`Attempt ${index + 1}`} />
                ))}
              </FormSelect>
            </ToolbarItem>
          )}
          {canFollow && !isFinished && (
            <ToolbarItem alignSelf="center">
              <Switch label="Follow" isChecked={follows} onChange={(_event, value) => setFollows(value)} />
            </ToolbarItem>
          )}
          <ToolbarItem>
            <Button variant="secondary" isDisabled={search === '' || expression === null || whole === 'searching'} onClick={searchAll}>
              Search all lines
            </Button>
          </ToolbarItem>
          <ToolbarItem>
            <Button variant="secondary" isDisabled={shown.length === 0} onClick={download}>
              Download all lines
            </Button>
          </ToolbarItem>
          {tail?.hasMore === true && most < MORE && (
            <ToolbarItem>
              <Button variant="link" onClick={() => setMost(MORE)}>
                Show earlier lines
              </Button>
            </ToolbarItem>
          )}
        </ToolbarContent>
      </Toolbar>
      {whole === 'searching' && <Spinner aria-label="Searching all lines" />}
      {whole !== null && whole !== 'searching' && <Passages found={whole} onClose={() => setWhole(null)} />}
      {lines === null && problem === null && <Spinner aria-label="Loading the log" />}
      {lines !== null && lines.length === 0 && <p>There are no lines yet.</p>}
      <div className="log" ref={box} tabIndex={0} role="log" aria-label="Log" aria-live="off">
        <div style={{ height: virtual.getTotalSize(), position: 'relative' }}>
          {virtual.getVirtualItems().map((item) => {
            const line = shown[item.index];
            return (
              <div
                key={item.key}
                data-index={item.index}
                ref={virtual.measureElement}
                style={{ position: 'absolute', insetInline: 0, transform: `translateY(${item.start}px)` }}
              >
                {line && <Line line={line} isFound={isFound.has(item.index)} />}
              </div>
            );
          })}
        </div>
      </div>
    </>
  );
}

/** Lines that were found in the whole log, each with those around it. */
function Passages({ found, onClose }: { found: FoundInLog; onClose: () => void }) {
  const count = found.passages.length;
  const title = `${count === 1 ? '1 line' : `${count} lines`} of ${found.searched} found${found.hasMore ? '; there may be more' : ''}`;
  return (
    <Card isCompact>
      <CardHeader
        actions={{
          actions: (
            <Button variant="plain" onClick={onClose}>
              Close
            </Button>
          ),
        }}
      >
        <CardTitle>
          <span aria-live="polite">{title}</span>
        </CardTitle>
      </CardHeader>
      <CardBody>
        {found.troubles.map((line) => (
          <Alert key={line} variant="warning" isInline title={line} />
        ))}
        <div className="passages" tabIndex={0} role="region" aria-label="Lines that were found">
          {found.passages.map((passage) => (
            <figure key={passage.number}>
              <figcaption>line {passage.number}</figcaption>
              {passage.lines.map((line, index) => (
                <Line key={index} line={line} isFound={index === passage.at} />
              ))}
            </figure>
          ))}
        </div>
      </CardBody>
    </Card>
  );
}

const same = (a: LogLine, b: LogLine) => a.time === b.time && a.rank === b.rank && a.step === b.step && a.text === b.text;

/** Lines with those that are new among `more`: a stream begins with what may have been shown already. */
export function merged(before: LogLine[], more: LogLine[]): LogLine[] {
  const last = before.at(-1)?.time ?? '';
  const near = before.slice(-2000);
  const fresh = more.filter((line) => line.time > last || !near.some((known) => same(known, line)));
  const all = [...before, ...fresh];
  if (fresh.some((line) => line.time !== '' && line.time < last)) all.sort((a, b) => (a.time < b.time ? -1 : a.time > b.time ? 1 : 0));
  return all.slice(-KEPT);
}
