/** Pages that are tables and facts, drawn from values: the server decides what they show (`crates/dashboard/src/sheets.rs`). */

import {
  Alert,
  Breadcrumb,
  BreadcrumbItem,
  Content,
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  EmptyState,
  EmptyStateBody,
  PageSection,
  Progress,
  ProgressMeasureLocation,
  ProgressSize,
  SearchInput,
  Spinner,
  Title,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from '@patternfly/react-core';
import { Table, Tbody, Td, Th, type ThProps, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { useEffect, useState } from 'react';
import { Link, useParams, useSearchParams } from 'react-router';
import { Problem, get } from './api';
import { duration } from './format';
import { Command, State, Trouble, useServerTime } from './parts';
import { topics } from './topics';
import type { Cell, Part, Sheet } from './types';

/** Milliseconds between two looks at a page. */
const LOOK = 3000;

function Value({ cell, now, label }: { cell: Cell; now: number; label: string }) {
  switch (cell.is) {
    case 'text':
    case 'number':
      return <>{cell.text}</>;
    case 'state':
      return <State state={cell.state} group={cell.group} />;
    case 'age':
      if (cell.at === null) return null;
      return <time dateTime={new Date(cell.at * 1000).toISOString()}>{duration(now - cell.at)} ago</time>;
    case 'link':
      return <Link to={cell.to}>{cell.text}</Link>;
    case 'bar':
      return (
        <div className="bar">
          <Progress aria-label={label} value={cell.percent} size={ProgressSize.sm} measureLocation={ProgressMeasureLocation.none} />
          {cell.text}
        </div>
      );
  }
}

type TablePart = Extract<Part, { part: 'table' }>;

function Rows({ part, now, title, sorted }: { part: TablePart; now: number; title: string; sorted?: (at: number, by: string) => ThProps['sort'] }) {
  if (part.rows.length === 0) {
    return (
      <>
        <Content component="p">{part.empty}</Content>
        {part.emptyCommand !== null && <Command command={part.emptyCommand} label={part.empty} />}
      </>
    );
  }
  return (
    <>
      <div className="scroll" tabIndex={0} role="region" aria-label={`${title}, a table`}>
      <Table aria-label={title} variant="compact">
        <Thead>
          <Tr>
            {part.headings.map((heading, at) => {
              const sort = sorted?.(at, heading.title);
              return (
                <Th key={heading.title} modifier="nowrap" {...(sort === undefined ? {} : { sort })}>
                  {heading.title}
                </Th>
              );
            })}
          </Tr>
        </Thead>
        <Tbody>
          {part.rows.map((row, at) => (
            <Tr key={at}>
              {row.map((cell, column) => {
                const heading = part.headings[column]?.title ?? '';
                return (
                  <Td key={column} dataLabel={heading} modifier="breakWord">
                    <Value cell={cell} now={now} label={heading} />
                  </Td>
                );
              })}
            </Tr>
          ))}
        </Tbody>
      </Table>
      </div>
      {part.leftOut > 0 && (
        <Content component="p">
          Rows not shown: {part.leftOut}.{part.isMain && ' Search to narrow the table.'}
        </Content>
      )}
    </>
  );
}

/** A part of a page under its title. */
export function PartOfPage({ part, now }: { part: Part; now: number }) {
  const title = part.title !== '' && (
    <Title headingLevel="h2" size="lg">
      {part.title}
    </Title>
  );
  switch (part.part) {
    case 'facts':
      return (
        <section>
          {title}
          <DescriptionList isHorizontal isCompact>
            {part.facts.map(({ term, value }) => (
              <DescriptionListGroup key={term}>
                <DescriptionListTerm>{term}</DescriptionListTerm>
                <DescriptionListDescription>
                  <Value cell={value} now={now} label={term} />
                </DescriptionListDescription>
              </DescriptionListGroup>
            ))}
          </DescriptionList>
        </section>
      );
    case 'table':
      return (
        <section>
          {title}
          <Rows part={part} now={now} title={part.title} />
        </section>
      );
    case 'lines':
      return (
        <section>
          {title}
          {part.lines.map((line, at) => (
            <Content key={at} component="p">
              {line}
            </Content>
          ))}
        </section>
      );
    case 'text':
      return (
        <section>
          {title}
          <pre className="quote" tabIndex={0}>
            {part.text}
          </pre>
        </section>
      );
    case 'commands':
      return (
        <section>
          {title}
          {part.commands.map(({ title: what, command }) => (
            <div key={what}>
              <Content component="p">{what}</Content>
              <Command command={command} label={what} />
            </div>
          ))}
        </section>
      );
  }
}

function Search({ onSearch, text }: { text: string; onSearch: (text: string) => void }) {
  const [typed, setTyped] = useState(text);
  return (
    <SearchInput
      aria-label="Search in all columns"
      placeholder="Search"
      value={typed}
      onChange={(_event, value) => setTyped(value)}
      onSearch={() => onSearch(typed)}
      onClear={() => {
        setTyped('');
        onSearch('');
      }}
    />
  );
}

/** The table that a page is about; its order and its search are in the address. */
function MainTable({ part, now, title }: { part: TablePart; now: number; title: string }) {
  const [parameters, setParameters] = useSearchParams();
  const change = (edit: (next: URLSearchParams) => void) =>
    setParameters((before) => {
      const next = new URLSearchParams(before);
      edit(next);
      return next;
    });
  const sort = parameters.get('sort');
  const index = part.headings.findIndex((heading) => heading.title === sort);
  const sorted = (at: number, by: string): ThProps['sort'] => ({
    sortBy: index < 0 ? {} : { index, direction: parameters.get('order') === 'desc' ? 'desc' : 'asc' },
    columnIndex: at,
    onSort: (_event, _index, direction) =>
      change((next) => {
        next.set('sort', by);
        next.set('order', direction);
      }),
  });
  return (
    <>
      <Toolbar>
        <ToolbarContent>
          <ToolbarItem>
            <Search
              text={parameters.get('text') ?? ''}
              onSearch={(text) => change((next) => (text === '' ? next.delete('text') : next.set('text', text)))}
            />
          </ToolbarItem>
          <ToolbarItem alignSelf="center">
            <span aria-live="polite">{part.rows.length === 1 ? '1 row' : `${part.rows.length + part.leftOut} rows`}</span>
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      <Rows part={part} now={now} title={title} sorted={sorted} />
    </>
  );
}

export default function SheetPage({ topic }: { topic: string }) {
  const { namespace, name } = useParams();
  const [parameters] = useSearchParams();
  const isOne = namespace !== undefined && name !== undefined;
  const path = isOne
    ? `/api/sheets/${topic}/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`
    : `/api/sheets/${topic}?${parameters.toString()}`;
  const { data: sheet, error } = useQuery({
    queryKey: ['sheet', path],
    queryFn: ({ signal }) => get<Sheet>(path, signal),
    refetchInterval: LOOK,
    // the next order of the same table
    ...(isOne ? {} : { placeholderData: keepPreviousData }),
  });
  const problem = error instanceof Problem ? error : null;
  const now = useServerTime(sheet?.now);
  const title = sheet?.title ?? topics[topic] ?? '';

  useEffect(() => {
    document.title = `${title} · Trainyard`;
  }, [title]);

  const isGone = problem?.reason === 'notFound' || problem?.reason === 'forbidden';
  if (sheet === undefined || (isOne && isGone)) {
    return (
      <PageSection>
        {problem === null ? (
          <Spinner aria-label={`Loading ${title}`} />
        ) : (
          <EmptyState titleText={problem.message} headingLevel="h1">
            <EmptyStateBody>
              <Link to={isOne ? `/${topic}` : '/jobs'}>{isOne ? topics[topic] : 'All jobs'}</Link>
            </EmptyStateBody>
          </EmptyState>
        )}
      </PageSection>
    );
  }
  return (
    <>
      <PageSection>
        {isOne && (
          <Breadcrumb>
            <BreadcrumbItem>
              <Link to={`/${topic}`}>{topics[topic]}</Link>
            </BreadcrumbItem>
            <BreadcrumbItem isActive>{sheet.title}</BreadcrumbItem>
          </Breadcrumb>
        )}
        <Title headingLevel="h1">
          {sheet.title} {sheet.state !== null && <Value cell={sheet.state} now={now} label="State" />}
        </Title>
        {sheet.subtitle !== '' && <Content component="small">{sheet.subtitle}</Content>}
      </PageSection>
      <PageSection>
        <Trouble problem={problem} />
        {sheet.hidden.map((line) => (
          <Alert key={line} variant="info" isInline title={line} />
        ))}
        <div className="parts">
          {sheet.parts.map((part, at) =>
            part.part === 'table' && part.isMain ? (
              <MainTable key={at} part={part} now={now} title={sheet.title} />
            ) : (
              <PartOfPage key={at} part={part} now={now} />
            ),
          )}
        </div>
      </PageSection>
    </>
  );
}
