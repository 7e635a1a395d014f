/** The table of all jobs, live. What it shows is in its address. */

import {
  Alert,
  Button,
  Content,
  Dropdown,
  DropdownItem,
  DropdownList,
  EmptyState,
  EmptyStateActions,
  EmptyStateBody,
  EmptyStateFooter,
  MenuToggle,
  PageSection,
  Progress,
  ProgressMeasureLocation,
  ProgressSize,
  SearchInput,
  Spinner,
  Title,
  ToggleGroup,
  ToggleGroupItem,
  Toolbar,
  ToolbarContent,
  ToolbarGroup,
  ToolbarItem,
} from '@patternfly/react-core';
import { Table, Tbody, Td, Th, type ThProps, Thead, Tr } from '@patternfly/react-table';
import { useEffect, useMemo, useState } from 'react';
import { Link, useSearchParams } from 'react-router';
import { AskAction } from './actions';
import { type Problem, watch } from './api';
import { duration, jobPath, kindNames } from './format';
import { Command, State, Trouble, useServerTime } from './parts';
import { type Kind, type Page, type Row, type Verb, kinds } from './types';

/** Columns with the names by which the server sorts them. */
const columns: { title: string; sort?: string }[] = [
  { title: 'Name', sort: 'name' },
  { title: 'Kind', sort: 'kind' },
  { title: 'Namespace', sort: 'namespace' },
  { title: 'State', sort: 'state' },
  { title: 'Progress', sort: 'progress' },
  { title: 'Nodes', sort: 'nodes' },
  { title: 'GPUs', sort: 'gpus' },
  { title: 'Restarts' },
  { title: 'Age', sort: 'created' },
];

const states = ['pending', 'running', 'restarting', 'suspended', 'complete', 'failed'];

/** The page of the table that an address asks for, again at each change. */
function usePage(query: string): { page: Page | null; problem: Problem | null } {
  const [page, setPage] = useState<Page | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  useEffect(() => {
    setProblem(null);
    return watch(`/api/jobs/live?${query}`, {
      see: ({ name, data }) => {
        if (name === 'page') setPage(JSON.parse(data) as Page);
      },
      trouble: setProblem,
    });
  }, [query]);
  return { page, problem };
}

function Filters({ page }: { page: Page | null }) {
  const [parameters, setParameters] = useSearchParams();
  const [text, setText] = useState(parameters.get('text') ?? '');
  const change = (edit: (next: URLSearchParams) => void) =>
    setParameters((before) => {
      const next = new URLSearchParams(before);
      next.delete('cursor');
      edit(next);
      return next;
    });
  const toggle = (name: string, value: string) =>
    change((next) => {
      const chosen = next.getAll(name);
      next.delete(name);
      (chosen.includes(value) ? chosen.filter((one) => one !== value) : [...chosen, value]).forEach((one) => next.append(name, one));
    });
  const search = (value: string) => change((next) => (value === '' ? next.delete('text') : next.set('text', value)));
  return (
    <Toolbar clearAllFilters={() => setParameters({})} id="filters">
      <ToolbarContent>
        <ToolbarItem>
          <SearchInput
            aria-label="Search in names, namespaces, runtimes, queues and owners"
            placeholder="Search"
            value={text}
            onChange={(_event, value) => setText(value)}
            onSearch={() => search(text)}
            onClear={() => {
              setText('');
              search('');
            }}
          />
        </ToolbarItem>
        <ToolbarGroup>
          <ToolbarItem>
            <ToggleGroup aria-label="States">
              {states.map((state) => (
                <ToggleGroupItem
                  key={state}
                  text={`${state} ${page?.counts[state] ?? 0}`}
                  buttonId={`state-${state}`}
                  isSelected={parameters.getAll('state').includes(state)}
                  onChange={() => toggle('state', state)}
                />
              ))}
            </ToggleGroup>
          </ToolbarItem>
          <ToolbarItem>
            <ToggleGroup aria-label="Kinds">
              {kinds.map((kind) => (
                <ToggleGroupItem
                  key={kind}
                  text={kindNames[kind]}
                  buttonId={`kind-${kind}`}
                  isSelected={parameters.getAll('kind').includes(kind)}
                  onChange={() => toggle('kind', kind)}
                />
              ))}
            </ToggleGroup>
          </ToolbarItem>
        </ToolbarGroup>
      </ToolbarContent>
    </Toolbar>
  );
}

function Actions({ chosen, onAsk }: { chosen: Row[]; onAsk: (verb: Verb) => void }) {
  const [isOpen, setOpen] = useState(false);
  const item = (verb: Verb, title: string) => (
    <DropdownItem key={verb} onClick={() => onAsk(verb)}>
      {title}
    </DropdownItem>
  );
  return (
    <Dropdown
      isOpen={isOpen}
      onOpenChange={setOpen}
      onSelect={() => setOpen(false)}
      toggle={(toggle) => (
        <MenuToggle ref={toggle} isDisabled={chosen.length === 0} isExpanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {chosen.length === 0 ? 'Actions' : `Actions on ${chosen.length}`}
        </MenuToggle>
      )}
    >
      <DropdownList>{[item('suspend', 'Suspend'), item('resume', 'Resume'), item('delete', 'Delete')]}</DropdownList>
    </Dropdown>
  );
}

function NoJobs({ isFiltered }: { isFiltered: boolean }) {
  const [, setParameters] = useSearchParams();
  if (isFiltered) {
    return (
      <EmptyState titleText="No job is like that" headingLevel="h2">
        <EmptyStateFooter>
          <EmptyStateActions>
            <Button variant="link" onClick={() => setParameters({})}>
              Show all jobs
            </Button>
          </EmptyStateActions>
        </EmptyStateFooter>
      </EmptyState>
    );
  }
  return (
    <EmptyState titleText="There are no jobs yet" headingLevel="h2">
      <EmptyStateBody>
        Start the first one in a terminal:
        <Command command="trainyard run train.py" label="The first command" />
      </EmptyStateBody>
    </EmptyState>
  );
}

function JobRow({ row, now, isChosen, onChoose }: { row: Row; now: number; isChosen: boolean; onChoose: (chosen: boolean) => void }) {
  return (
    <Tr>
      <Td
        select={{ rowIndex: 0, isSelected: isChosen, onSelect: (_event, chosen) => onChoose(chosen), props: { 'aria-label': `Select ${row.name}` } as never }}
      />
      <Td dataLabel="Name">
        <Link to={jobPath(row)}>{row.title}</Link>
        {row.trials > 0 && (
          <Content component="small">
            <Link to={`/jobs?search=${encodeURIComponent(row.name)}&namespace=${encodeURIComponent(row.namespace)}`}>{row.trials} trials</Link>
          </Content>
        )}
      </Td>
      <Td dataLabel="Kind">{kindNames[row.kind]}</Td>
      <Td dataLabel="Namespace">{row.namespace}</Td>
      <Td dataLabel="State">
        <State state={row.state} group={row.group} />
        {row.reason !== '' && <div className="reason">{row.reason}</div>}
      </Td>
      <Td dataLabel="Progress">
        {row.progress !== null && (
          <Progress
            aria-label={`Progress of ${row.name}`}
            value={row.progress}
            size={ProgressSize.sm}
            measureLocation={ProgressMeasureLocation.outside}
          />
        )}
      </Td>
      <Td dataLabel="Nodes">{row.nodes ?? ''}</Td>
      <Td dataLabel="GPUs">{row.gpus || ''}</Td>
      <Td dataLabel="Restarts">{row.restarts || ''}</Td>
      <Td dataLabel="Age">{duration(now - row.created)}</Td>
    </Tr>
  );
}

export function JobsPage() {
  const [parameters, setParameters] = useSearchParams();
  const { page, problem } = usePage(parameters.toString());
  const now = useServerTime(page?.now);
  const [chosen, setChosen] = useState<Record<string, Row>>({});
  const [asked, setAsked] = useState<Verb | null>(null);

  // what is gone cannot be chosen
  const rows = page?.rows;
  const those = useMemo(() => (rows ?? []).filter((row) => row.uid in chosen), [rows, chosen]);
  const isAll = those.length > 0 && those.length === rows?.length;

  const sort = parameters.get('sort') ?? 'created';
  const order = parameters.get('order') ?? (['created', 'progress', 'nodes', 'gpus'].includes(sort) ? 'desc' : 'asc');
  const sorted = (index: number, by: string): NonNullable<ThProps['sort']> => ({
    sortBy: { index: columns.findIndex((column) => column.sort === sort), direction: order === 'desc' ? 'desc' : 'asc' },
    columnIndex: index,
    onSort: (_event, _index, direction) =>
      setParameters((before) => {
        const next = new URLSearchParams(before);
        next.delete('cursor');
        next.set('sort', by);
        next.set('order', direction);
        return next;
      }),
  });
  const go = (cursor: string | null) =>
    setParameters((before) => {
      const next = new URLSearchParams(before);
      if (cursor === null) next.delete('cursor');
      else next.set('cursor', cursor);
      return next;
    });
  const search = parameters.get('search');
  const isFiltered = ['text', 'state', 'kind', 'namespace', 'search', 'cursor'].some((name) => parameters.has(name));

  useEffect(() => {
    document.title = 'Jobs · Trainyard';
  }, []);

  return (
    <>
      <PageSection>
        <Title headingLevel="h1">{search === null ? 'Jobs' : `Trials of ${search}`}</Title>
        {search !== null && <Link to="/jobs">All jobs</Link>}
      </PageSection>
      <PageSection>
        <Trouble problem={problem} />
        {page?.hidden.map((line) => <Alert key={line} variant="info" isInline title={line} />)}
        {page !== null && page.loading.length > 0 && (
          <Alert variant="info" isInline title={`Still reading: ${page.loading.map((kind: Kind) => kindNames[kind]).join(', ')}`} />
        )}
        <Filters page={page} />
        <Toolbar>
          <ToolbarContent>
            <ToolbarItem>
              <Actions chosen={those} onAsk={setAsked} />
            </ToolbarItem>
            <ToolbarItem alignSelf="center">
              <span aria-live="polite">
                {page === null ? '' : page.total === 0 ? 'No jobs' : `${page.before + 1} to ${page.before + page.rows.length} of ${page.total}`}
              </span>
            </ToolbarItem>
            <ToolbarItem>
              <Button variant="link" isDisabled={!parameters.has('cursor')} onClick={() => go(null)}>
                First page
              </Button>
              <Button variant="link" isDisabled={page?.next === undefined} onClick={() => go(page?.next ?? null)}>
                Next page
              </Button>
            </ToolbarItem>
          </ToolbarContent>
        </Toolbar>
        {page === null && problem === null && <Spinner aria-label="Loading jobs" />}
        {page !== null && page.rows.length === 0 && <NoJobs isFiltered={isFiltered} />}
        {page !== null && page.rows.length > 0 && (
          <Table aria-label="Jobs" variant="compact">
            <Thead>
              <Tr>
                <Th
                  aria-label="Select all jobs on this page"
                  select={{
                    isSelected: isAll,
                    onSelect: (_event, all) => setChosen(all ? Object.fromEntries(page.rows.map((row) => [row.uid, row])) : {}),
                  }}
                />
                {columns.map(({ title, sort: by }, index) => (
                  <Th key={title} {...(by === undefined ? {} : { sort: sorted(index, by) })}>
                    {title}
                  </Th>
                ))}
              </Tr>
            </Thead>
            <Tbody>
              {page.rows.map((row) => (
                <JobRow
                  key={row.uid}
                  row={row}
                  now={now}
                  isChosen={row.uid in chosen}
                  onChoose={(is) =>
                    setChosen((before) => {
                      const { [row.uid]: _was, ...rest } = before;
                      return is ? { ...rest, [row.uid]: row } : rest;
                    })
                  }
                />
              ))}
            </Tbody>
          </Table>
        )}
      </PageSection>
      {asked !== null && (
        <AskAction
          verb={asked}
          jobs={those}
          onClose={(changed) => {
            setAsked(null);
            if (changed) setChosen({});
          }}
        />
      )}
    </>
  );
}
