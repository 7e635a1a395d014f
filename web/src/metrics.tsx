/** Curves of what a job reported, with other jobs beside it. */

import {
  Alert,
  Content,
  FormSelect,
  FormSelectOption,
  Label,
  LabelGroup,
  Spinner,
  Switch,
  Title,
  Toolbar,
  ToolbarContent,
  ToolbarItem,
} from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { keepPreviousData, useQuery } from '@tanstack/react-query';
import { Suspense, lazy, useMemo } from 'react';
import { useSearchParams } from 'react-router';
import { Problem, get } from './api';
import { Command, Trouble } from './parts';
import type { Curve, SeriesOfJobs } from './types';

const Chart = lazy(() => import('./chart'));

/** Milliseconds between two looks at what a job reports. */
const LOOK = 5000;

const shown = (value: number | null | undefined) => (value === null || value === undefined ? '' : String(Number(value.toPrecision(6))));

/** A metric, with the curve of each job that reported it. */
interface Metric {
  name: string;
  ofJobs: { job: string; curve: Curve }[];
}

/** The metrics of all jobs, in the order of the first. */
function metricsOf(answer: SeriesOfJobs): Metric[] {
  const metrics = new Map<string, Metric>();
  for (const { name: job, curves } of answer.jobs) {
    for (const curve of curves) {
      const metric = metrics.get(curve.name) ?? { name: curve.name, ofJobs: [] };
      metric.ofJobs.push({ job, curve });
      metrics.set(curve.name, metric);
    }
  }
  return [...metrics.values()];
}

function MetricChart({ metric, isLog }: { metric: Metric; isLog: boolean }) {
  const option = useMemo(
    () => ({
      grid: { left: 60, right: 16, top: 16, bottom: metric.ofJobs.length > 1 ? 64 : 40 },
      tooltip: { trigger: 'axis', renderMode: 'richText' },
      legend: { show: metric.ofJobs.length > 1, bottom: 0, type: 'plain' },
      xAxis: { type: 'value', name: 'seconds since the job was created', nameLocation: 'middle', nameGap: 24 },
      yAxis: { type: isLog ? 'log' : 'value', scale: true },
      series: metric.ofJobs.map(({ job, curve }) => ({
        name: job,
        type: 'line',
        showSymbol: curve.points.length < 50,
        // a logarithm has no value at 0 and below
        data: curve.points.map(([at, value]) => [at, isLog && value !== null && value <= 0 ? null : value]),
      })),
    }),
    [metric, isLog],
  );
  return (
    <section>
      <Title headingLevel="h2" size="md">
        {metric.name}
      </Title>
      <Suspense fallback={<Spinner aria-label="Loading the chart" />}>
        <Chart label={`${metric.name} over time; its values are in the table below`} option={option} />
      </Suspense>
      <Table aria-label={metric.name} variant="compact">
        <Thead>
          <Tr>
            {['Job', 'Last', 'Min', 'Max', 'Reports'].map((title) => (
              <Th key={title}>{title}</Th>
            ))}
          </Tr>
        </Thead>
        <Tbody>
          {metric.ofJobs.map(({ job, curve }) => (
            <Tr key={job}>
              <Td dataLabel="Job">{job}</Td>
              <Td dataLabel="Last">{shown(curve.last)}</Td>
              <Td dataLabel="Min">{shown(curve.least)}</Td>
              <Td dataLabel="Max">{shown(curve.greatest)}</Td>
              <Td dataLabel="Reports">
                {curve.reported}
                {curve.notFinite > 0 && ` (not finite: ${curve.notFinite})`}
              </Td>
            </Tr>
          ))}
        </Tbody>
      </Table>
    </section>
  );
}

export default function MetricsTab({ path, isFinished }: { path: string; isFinished: boolean }) {
  const [parameters, setParameters] = useSearchParams();
  const beside = parameters.getAll('with');
  const isLog = parameters.has('log');
  const query = new URLSearchParams(beside.map((name) => ['with', name])).toString();
  const { data: answer, error } = useQuery({
    queryKey: ['series', path, query],
    queryFn: ({ signal }) => get<SeriesOfJobs>(`/api${path}/series?${query}`, signal),
    refetchInterval: isFinished && beside.length === 0 ? false : LOOK,
    // the same curves with one more beside them
    placeholderData: keepPreviousData,
  });
  const problem = error instanceof Problem ? error : null;
  const metrics = useMemo(() => (answer === undefined ? [] : metricsOf(answer)), [answer]);
  const change = (edit: (next: URLSearchParams) => void) =>
    setParameters(
      (before) => {
        const next = new URLSearchParams(before);
        edit(next);
        return next;
      },
      { replace: true },
    );
  if (answer === undefined) return problem === null ? <Spinner aria-label="Loading metrics" /> : <Trouble problem={problem} />;
  const others = answer.others.filter((name) => !beside.includes(name));
  return (
    <>
      <Trouble problem={problem} />
      <Toolbar>
        <ToolbarContent>
          <ToolbarItem>
            <FormSelect
              aria-label="Compare with another job"
              value=""
              onChange={(_event, name) => change((next) => next.append('with', name))}
              isDisabled={others.length === 0}
            >
              <FormSelectOption value="" label="Compare with another job" isPlaceholder />
              {others.map((name) => (
                <FormSelectOption key={name} value={name} label={name} />
              ))}
            </FormSelect>
          </ToolbarItem>
          <ToolbarItem alignSelf="center">
            <Switch
              label="Logarithmic"
              aria-label="Logarithmic scale"
              isChecked={isLog}
              onChange={(_event, is) => change((next) => (is ? next.set('log', '1') : next.delete('log')))}
            />
          </ToolbarItem>
          {beside.length > 0 && (
            <ToolbarItem alignSelf="center">
              <LabelGroup categoryName="Compared with">
                {beside.map((name) => (
                  <Label
                    key={name}
                    closeBtnAriaLabel={`Remove ${name}`}
                    onClose={() =>
                      change((next) => {
                        const left = next.getAll('with').filter((one) => one !== name);
                        next.delete('with');
                        left.forEach((one) => next.append('with', one));
                      })
                    }
                  >
                    {name}
                  </Label>
                ))}
              </LabelGroup>
            </ToolbarItem>
          )}
        </ToolbarContent>
      </Toolbar>
      {answer.jobs
        .filter((job) => job.note !== '')
        .map((job) => (
          <Alert key={job.name} variant="info" isInline title={job.note} />
        ))}
      {metrics.length === 0 ? (
        <>
          <Content component="p">This job has not reported metrics. A script can report them (docs/metrics.md), or Trainyard can read them from its output:</Content>
          <Command command="trainyard run --metric loss train.py" label="A command that reads metrics from the output" />
        </>
      ) : (
        <div className="charts">
          {metrics.map((metric) => (
            <MetricChart key={metric.name} metric={metric} isLog={isLog} />
          ))}
        </div>
      )}
    </>
  );
}
