/** The trials of a search: parallel coordinates, scatter plots, the best value over time, and the table, with one selection for all. */

import { Button, Checkbox, Content, Flex, FlexItem, FormSelect, FormSelectOption, Label, Spinner, Switch, Title } from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { Suspense, lazy, useMemo, useState } from 'react';
import { Link } from 'react-router';
import { clock, jobPath } from './format';
import { State } from './parts';
import type { Search, Trial } from './types';

const Chart = lazy(() => import('./chart'));

const CHOSEN = '#0066cc';
const OTHERS = '#8a8d90';

/** A value as an axis has it: a number where it is one. */
const onAxis = (text: string | undefined): number | string => {
  const number = Number(text);
  return text === undefined || text === '' || Number.isNaN(number) ? (text ?? '') : number;
};

const parameterOf = (trial: Trial, name: string) => trial.parameters.find((parameter) => parameter.name === name)?.value;

/** What charts draw: trials that ended well and reported a number. Whatever has not ended, or has failed, is no result. */
export function results(trials: Trial[]): { trial: Trial; value: number }[] {
  return trials.flatMap((trial) => {
    const value = trial.value === null ? NaN : Number(trial.value);
    return trial.state === 'Complete' && Number.isFinite(value) ? [{ trial, value }] : [];
  });
}

interface Axis {
  name: string;
  isShown: boolean;
  isLog: boolean;
}

/** Chooses and orders the axes of the parallel coordinates. */
function Axes({ axes, onChange }: { axes: Axis[]; onChange: (axes: Axis[]) => void }) {
  const edit = (at: number, change: Partial<Axis>) => onChange(axes.map((axis, index) => (index === at ? { ...axis, ...change } : axis)));
  const move = (at: number, by: number) => {
    const next = [...axes];
    const [axis] = next.splice(at, 1);
    if (axis !== undefined) next.splice(at + by, 0, axis);
    onChange(next);
  };
  return (
    <ul aria-label="Axes" className="axes">
      {axes.map((axis, at) => (
        <li key={axis.name}>
          <Flex alignItems={{ default: 'alignItemsCenter' }}>
            <FlexItem>
              <Checkbox id={`axis-${at}`} label={axis.name} isChecked={axis.isShown} onChange={(_event, isShown) => edit(at, { isShown })} />
            </FlexItem>
            <FlexItem>
              <Checkbox id={`log-${at}`} label={`logarithmic: ${axis.name}`} isChecked={axis.isLog} onChange={(_event, isLog) => edit(at, { isLog })} />
            </FlexItem>
            <FlexItem>
              <Button variant="plain" size="sm" isDisabled={at === 0} aria-label={`Move ${axis.name} to the left`} onClick={() => move(at, -1)}>
                ←
              </Button>
              <Button variant="plain" size="sm" isDisabled={at === axes.length - 1} aria-label={`Move ${axis.name} to the right`} onClick={() => move(at, 1)}>
                →
              </Button>
            </FlexItem>
          </Flex>
        </li>
      ))}
    </ul>
  );
}

export default function SweepTab({ trials, search, namespace }: { trials: Trial[]; search: Search; namespace: string }) {
  const names = useMemo(() => [...new Set(trials.flatMap((trial) => trial.parameters.map((parameter) => parameter.name)))], [trials]);
  const [chosen, setChosen] = useState<Set<string>>(new Set());
  const [ordered, setOrdered] = useState<Axis[]>([]);
  const [against, setAgainst] = useState('');
  const [isLog, setLog] = useState(false);
  // parameters that came later stand before the metric
  const axes = useMemo(() => {
    const all = [...names, search.metric];
    const known = ordered.filter((axis) => all.includes(axis.name));
    const fresh = all.filter((name) => !known.some((axis) => axis.name === name)).map((name) => ({ name, isShown: true, isLog: false }));
    return [...known, ...fresh];
  }, [names, search.metric, ordered]);
  const drawn = useMemo(() => results(trials), [trials]);
  const choose = (name: string) =>
    setChosen((before) => {
      const next = new Set(before);
      if (!next.delete(name)) next.add(name);
      return next;
    });
  const at = (trial: Trial, value: number, name: string) => (name === search.metric ? value : onAxis(parameterOf(trial, name)));
  const isNumeric = (name: string) => drawn.every(({ trial, value }) => typeof at(trial, value, name) === 'number');
  const colour = (name: string) => (chosen.has(name) ? CHOSEN : OTHERS);

  const parallel = useMemo(() => {
    const shown = axes.filter((axis) => axis.isShown);
    return {
      parallel: { left: 60, right: 60, top: 40, bottom: 24 },
      tooltip: { renderMode: 'richText', formatter: (item: { name: string }) => item.name },
      parallelAxis: shown.map(({ name, isLog: log }, dim) => {
        const numeric = isNumeric(name);
        return { dim, name, type: !numeric ? 'category' : log ? 'log' : 'value', scale: true };
      }),
      series: [
        {
          type: 'parallel',
          lineStyle: { width: 2, opacity: 0.7 },
          data: drawn.map(({ trial, value }) => ({
            name: trial.name,
            value: shown.map(({ name }) => at(trial, value, name)),
            lineStyle: { color: colour(trial.name), width: chosen.has(trial.name) ? 4 : 2 },
          })),
        },
      ],
    };
  }, [axes, drawn, chosen]);

  const parameter = against === '' ? (names[0] ?? '') : against;
  const scatter = useMemo(
    () => ({
      grid: { left: 60, right: 24, top: 16, bottom: 44 },
      tooltip: { renderMode: 'richText', formatter: (item: { name: string }) => item.name },
      xAxis: { type: !isNumeric(parameter) ? 'category' : isLog ? 'log' : 'value', name: parameter, nameLocation: 'middle', nameGap: 26, scale: true },
      yAxis: { type: 'value', name: search.metric, scale: true },
      series: [
        {
          type: 'scatter',
          data: drawn.map(({ trial, value }) => ({
            name: trial.name,
            value: [at(trial, value, parameter), value],
            symbolSize: chosen.has(trial.name) ? 16 : 10,
            itemStyle: { color: colour(trial.name) },
          })),
        },
      ],
    }),
    [parameter, isLog, drawn, chosen, search.metric],
  );

  const best = useMemo(
    () => ({
      grid: { left: 60, right: 24, top: 16, bottom: 44 },
      tooltip: { renderMode: 'richText', trigger: 'axis' },
      xAxis: { type: 'time' },
      yAxis: { type: 'value', scale: true },
      series: [{ type: 'line', step: 'end', name: search.metric, data: search.best.map(({ at: time, value, trial }) => ({ name: trial, value: [time, value] })) }],
    }),
    [search],
  );

  return (
    <>
      {drawn.length === 0 ? (
        <Content component="p">No trial has ended well and reported {search.metric} yet.</Content>
      ) : (
        <Suspense fallback={<Spinner aria-label="Loading charts" />}>
          <section>
            <Title headingLevel="h2" size="md">
              Parameters and {search.metric}
            </Title>
            <Chart label="Parallel coordinates of the trials; their values are in the table below" option={parallel} height={320} onChoose={choose} />
            <Axes axes={axes} onChange={setOrdered} />
          </section>
          <div className="charts">
            <section>
              <Title headingLevel="h2" size="md">
                {search.metric} by parameter
              </Title>
              <Flex>
                <FlexItem>
                  <FormSelect aria-label="Parameter" value={parameter} onChange={(_event, name) => setAgainst(name)}>
                    {names.map((name) => (
                      <FormSelectOption key={name} value={name} label={name} />
                    ))}
                  </FormSelect>
                </FlexItem>
                <FlexItem>
                  <Switch label="Logarithmic" aria-label="Logarithmic scale of the parameter" isChecked={isLog} onChange={(_event, is) => setLog(is)} />
                </FlexItem>
              </Flex>
              <Chart label={`${search.metric} of each trial by ${parameter}; the values are in the table below`} option={scatter} onChoose={choose} />
            </section>
            <section>
              <Title headingLevel="h2" size="md">
                Best {search.metric} over time
              </Title>
              <Chart label={`The best ${search.metric} over time; the values are in the table below`} option={best} onChoose={choose} />
              <Table aria-label={`Best ${search.metric} over time`} variant="compact">
                <Thead>
                  <Tr>
                    <Th>Time</Th>
                    <Th>{search.metric}</Th>
                    <Th>Trial</Th>
                  </Tr>
                </Thead>
                <Tbody>
                  {search.best.map(({ at: time, value, trial }) => (
                    <Tr key={trial}>
                      <Td dataLabel="Time">{clock(time)}</Td>
                      <Td dataLabel={search.metric}>{value}</Td>
                      <Td dataLabel="Trial">{trial}</Td>
                    </Tr>
                  ))}
                </Tbody>
              </Table>
            </section>
          </div>
        </Suspense>
      )}
      <TrialTable trials={trials} names={names} namespace={namespace} metric={search.metric} chosen={chosen} onChoose={choose} />
    </>
  );
}

interface TableProps {
  trials: Trial[];
  names: string[];
  namespace: string;
  metric: string;
  chosen: Set<string>;
  onChoose: (name: string) => void;
}

function TrialTable({ trials, names, namespace, metric, chosen, onChoose }: TableProps) {
  return (
    <div className="scroll" tabIndex={0} role="region" aria-label="Trials, a table">
      <Table aria-label="Trials" variant="compact">
        <Thead>
          <Tr>
            <Th screenReaderText="Choose a trial" />
            <Th>Trial</Th>
            <Th>State</Th>
            <Th>{metric}</Th>
            {names.map((name) => (
              <Th key={name}>{name}</Th>
            ))}
          </Tr>
        </Thead>
        <Tbody>
          {trials.map((trial) => (
            <Tr key={trial.name} isRowSelected={chosen.has(trial.name)}>
              <Td dataLabel="Choose">
                <Checkbox id={`choose-${trial.name}`} aria-label={`Choose ${trial.name}`} isChecked={chosen.has(trial.name)} onChange={() => onChoose(trial.name)} />
              </Td>
              <Td dataLabel="Trial">
                <Link to={jobPath({ kind: 'trainjob', namespace, name: trial.name })}>{trial.name}</Link>
                {trial.best && <Label color="green">best</Label>}
              </Td>
              <Td dataLabel="State">
                <State state={trial.state} group={trial.state.toLowerCase()} />
              </Td>
              {/* what has not ended well is no result */}
              <Td dataLabel={metric}>{trial.state === 'Complete' ? (trial.value ?? 'not reported') : ''}</Td>
              {names.map((name) => (
                <Td key={name} dataLabel={name}>
                  {parameterOf(trial, name) ?? ''}
                </Td>
              ))}
            </Tr>
          ))}
        </Tbody>
      </Table>
    </div>
  );
}
