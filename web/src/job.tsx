/** A job's page: why it is as it is, what happened, its members, its log, its text. */

import {
  Breadcrumb,
  BreadcrumbItem,
  Button,
  Card,
  CardBody,
  CardTitle,
  Content,
  DescriptionList,
  DescriptionListDescription,
  DescriptionListGroup,
  DescriptionListTerm,
  EmptyState,
  EmptyStateBody,
  Flex,
  FlexItem,
  Label,
  List,
  ListItem,
  PageSection,
  Progress,
  Spinner,
  Tab,
  TabTitleText,
  Tabs,
  Title,
} from '@patternfly/react-core';
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery } from '@tanstack/react-query';
import { Suspense, lazy, useEffect, useState } from 'react';
import { Link, useNavigate, useParams, useSearchParams } from 'react-router';
import { AskAction } from './actions';
import { Problem, get } from './api';
import { bytes, clock, duration, jobPath, kindNames } from './format';
import { LogTab } from './logs';
import { Command, State, Trouble } from './parts';
import { PartOfPage } from './sheet';
import type { Diagnosis, JobPage as Job, Kind, Verb } from './types';

const MetricsTab = lazy(() => import('./metrics'));
const SweepTab = lazy(() => import('./sweep'));

/** Milliseconds between two looks at a job that goes on, and at one that has ended. */
const LOOK = 2000;
const LOOK_ENDED = 15000;

function Why({ job, diagnosis }: { job: Job; diagnosis: Diagnosis }) {
  return (
    <Card>
      <CardTitle>
        <Title headingLevel="h2">
          {diagnosis.reason} <Label isCompact>{diagnosis.code}</Label>
        </Title>
      </CardTitle>
      <CardBody>
        <Content component="p">{diagnosis.why || job.message}</Content>
        {(diagnosis.warnings ?? []).map((line) => (
          <Content key={line} component="p">
            Warning: {line}
          </Content>
        ))}
        {diagnosis.evidence.length > 0 && <Title headingLevel="h3">Evidence</Title>}
        {diagnosis.evidence.map((quote, index) => (
          <figure key={index}>
            <figcaption>{quote.source}</figcaption>
            <pre className="quote">{quote.text}</pre>
          </figure>
        ))}
        {diagnosis.remedies.length > 0 && <Title headingLevel="h3">What to do</Title>}
        {diagnosis.remedies.map((remedy) => (
          <div key={remedy.text + (remedy.command ?? '')}>
            <Content component="p">{remedy.text}</Content>
            {remedy.command && <Command command={remedy.command} label={remedy.text} />}
          </div>
        ))}
        {diagnosis.ruled_out.length > 0 && (
          <>
            <Title headingLevel="h3">Not the cause</Title>
            <List>
              {diagnosis.ruled_out.map((line) => (
                <ListItem key={line}>{line}</ListItem>
              ))}
            </List>
          </>
        )}
      </CardBody>
    </Card>
  );
}

function Summary({ job }: { job: Job }) {
  const facts: [string, string][] = [
    ['Queue', job.queue],
    ['Attempt', job.attempts > 1 ? `${job.attempt} of ${job.attempts}` : ''],
    ['Restarts', job.restarts > 0 ? String(job.restarts) : ''],
    ['Progress', job.progress === null ? '' : job.progressLine],
    ['Message', job.diagnosis === null ? job.message : ''],
  ];
  return (
    <>
      {job.progress !== null && <Progress aria-label="Progress" value={job.progress} />}
      <DescriptionList isHorizontal isCompact>
        {facts
          .filter(([, value]) => value !== '')
          .map(([term, value]) => (
            <DescriptionListGroup key={term}>
              <DescriptionListTerm>{term}</DescriptionListTerm>
              <DescriptionListDescription>{value}</DescriptionListDescription>
            </DescriptionListGroup>
          ))}
      </DescriptionList>
    </>
  );
}

function Timeline({ job }: { job: Job }) {
  if (job.moments.length === 0) return <Content component="p">Nothing has happened to this job yet.</Content>;
  return (
    <Table aria-label="Timeline" variant="compact">
      <Thead>
        <Tr>
          <Th>Time</Th>
          <Th>What</Th>
          <Th>Object</Th>
          <Th>Message</Th>
        </Tr>
      </Thead>
      <Tbody>
        {job.moments.map((moment, index) => (
          <Tr key={index}>
            <Td dataLabel="Time">
              <time dateTime={moment.time}>{clock(moment.time)}</time>
            </Td>
            <Td dataLabel="What">
              {moment.isWarning ? <Label color="orange">Warning: {moment.reason}</Label> : moment.reason}
              {moment.count > 1 && ` ×${moment.count}`}
            </Td>
            <Td dataLabel="Object">{moment.object}</Td>
            <Td dataLabel="Message">{moment.text}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function Members({ job }: { job: Job }) {
  if (job.members.length === 0) return <Content component="p">This job has no pods.</Content>;
  const lasted = (started: string, finished: string) => {
    const begin = Date.parse(started) / 1000;
    const end = finished === '' ? job.now : Date.parse(finished) / 1000;
    return Number.isNaN(begin) || Number.isNaN(end) ? '' : duration(end - begin);
  };
  return (
    <Table aria-label="Ranks" variant="compact">
      <Thead>
        <Tr>
          {['Step', 'Ranks', 'Attempt', 'State', 'Exit code', 'Restarts', 'Host', 'Ran for', 'Peak memory', 'Pod'].map((title) => (
            <Th key={title}>{title}</Th>
          ))}
        </Tr>
      </Thead>
      <Tbody>
        {job.members.map((member, index) => (
          <Tr key={index}>
            <Td dataLabel="Step">{member.step}</Td>
            <Td dataLabel="Ranks">{member.ranks}</Td>
            <Td dataLabel="Attempt">{member.attempt || ''}</Td>
            <Td dataLabel="State">
              {member.state}
              {!member.live && ' (its pod is gone)'}
            </Td>
            <Td dataLabel="Exit code">{member.exitCode ?? ''}</Td>
            <Td dataLabel="Restarts">{member.restarts || ''}</Td>
            <Td dataLabel="Host">{member.host}</Td>
            <Td dataLabel="Ran for">{lasted(member.started, member.finished)}</Td>
            <Td dataLabel="Peak memory">{member.peakMemory === null ? '' : bytes(member.peakMemory)}</Td>
            <Td dataLabel="Pod">{member.pod}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function Actions({ job, onAsk }: { job: Job; onAsk: (verb: Verb) => void }) {
  const isChangeable = !job.isFinished && job.kind !== 'optimizationjob' && job.kind !== 'managedjob';
  return (
    <Flex>
      {isChangeable && (
        <FlexItem>
          <Button variant="secondary" onClick={() => onAsk(job.isSuspended ? 'resume' : 'suspend')}>
            {job.isSuspended ? 'Resume' : 'Suspend'}
          </Button>
        </FlexItem>
      )}
      {['trainjob', 'mpijob', 'optimizationjob'].includes(job.kind) && (
        <FlexItem>
          <Link to={`/submit?${new URLSearchParams({ from: `${job.kind}/${job.namespace}/${job.name}` }).toString()}`}>Copy</Link>
        </FlexItem>
      )}
      <FlexItem>
        <Button variant="secondary" isDanger onClick={() => onAsk('delete')}>
          Delete
        </Button>
      </FlexItem>
    </Flex>
  );
}

export default function JobPage() {
  const { kind = '', namespace = '', name = '' } = useParams();
  const [parameters, setParameters] = useSearchParams();
  const navigate = useNavigate();
  const [asked, setAsked] = useState<Verb | null>(null);
  const path = jobPath({ kind: kind as Kind, namespace, name });
  const { data: job, error } = useQuery({
    queryKey: ['job', path],
    queryFn: ({ signal }) => get<Job>(`/api${path}`, signal),
    refetchInterval: (query) => (query.state.data?.isFinished ? LOOK_ENDED : LOOK),
  });
  const problem = error instanceof Problem ? error : null;
  const tab = parameters.get('tab') ?? 'overview';

  useEffect(() => {
    document.title = `${name} · Trainyard`;
  }, [name]);

  if (job === undefined || problem?.reason === 'notFound') {
    return (
      <PageSection>
        {problem === null ? (
          <Spinner aria-label="Loading the job" />
        ) : (
          <EmptyState titleText={problem.message} headingLevel="h1">
            <EmptyStateBody>
              <Link to="/jobs">All jobs</Link>
            </EmptyStateBody>
          </EmptyState>
        )}
      </PageSection>
    );
  }
  const has = { logs: job.kind === 'trainjob' || job.kind === 'mpijob', metrics: job.kind === 'trainjob' };
  return (
    <>
      <PageSection>
        <Breadcrumb>
          <BreadcrumbItem>
            <Link to="/jobs">Jobs</Link>
          </BreadcrumbItem>
          <BreadcrumbItem isActive>{job.name}</BreadcrumbItem>
        </Breadcrumb>
        <Flex justifyContent={{ default: 'justifyContentSpaceBetween' }}>
          <FlexItem>
            <Title headingLevel="h1">
              {job.name} <State state={job.state} group={job.state.split(' ')[0]?.toLowerCase() ?? ''} />
            </Title>
            <Content component="small">
              {kindNames[job.kind]} in namespace {job.namespace}
            </Content>
          </FlexItem>
          <FlexItem>
            <Actions job={job} onAsk={setAsked} />
          </FlexItem>
        </Flex>
      </PageSection>
      <PageSection>
        <Trouble problem={problem} />
        <Tabs
          aria-label="Parts of the job"
          activeKey={tab}
          mountOnEnter
          unmountOnExit
          onSelect={(_event, key) => setParameters({ tab: String(key) }, { replace: true })}
        >
          <Tab eventKey="overview" title={<TabTitleText>Overview</TabTitleText>}>
            <PageSection>
              <Summary job={job} />
              {job.diagnosis !== null && <Why job={job} diagnosis={job.diagnosis} />}
              {job.parts.map((part, at) => (
                <PartOfPage key={at} part={part} now={job.now} />
              ))}
            </PageSection>
          </Tab>
          {job.search !== null && (
            <Tab eventKey="trials" title={<TabTitleText>Trials</TabTitleText>}>
              <PageSection>
                <Suspense fallback={<Spinner aria-label="Loading trials" />}>
                  <SweepTab trials={job.trials} search={job.search} namespace={job.namespace} />
                </Suspense>
              </PageSection>
            </Tab>
          )}
          <Tab eventKey="timeline" title={<TabTitleText>Timeline</TabTitleText>}>
            <PageSection>
              <Timeline job={job} />
            </PageSection>
          </Tab>
          <Tab eventKey="ranks" title={<TabTitleText>Ranks</TabTitleText>}>
            <PageSection>
              <Members job={job} />
            </PageSection>
          </Tab>
          {has.logs && (
            <Tab eventKey="logs" title={<TabTitleText>Logs</TabTitleText>}>
              <PageSection>
                <LogTab path={path} isFinished={job.isFinished} canFollow={job.kind === 'trainjob'} />
              </PageSection>
            </Tab>
          )}
          {has.metrics && (
            <Tab eventKey="metrics" title={<TabTitleText>Metrics</TabTitleText>}>
              <PageSection>
                <Suspense fallback={<Spinner aria-label="Loading metrics" />}>
                  <MetricsTab path={path} isFinished={job.isFinished} />
                </Suspense>
              </PageSection>
            </Tab>
          )}
          <Tab eventKey="yaml" title={<TabTitleText>YAML</TabTitleText>}>
            <PageSection>
              <pre className="quote" tabIndex={0}>
                {job.yaml}
              </pre>
            </PageSection>
          </Tab>
          <Tab eventKey="commands" title={<TabTitleText>Commands</TabTitleText>}>
            <PageSection>
              {job.commands.map(({ title, command }) => (
                <div key={title}>
                  <Title headingLevel="h2" size="md">
                    {title}
                  </Title>
                  <Command command={command} label={title} />
                </div>
              ))}
            </PageSection>
          </Tab>
        </Tabs>
      </PageSection>
      {asked !== null && (
        <AskAction
          verb={asked}
          jobs={[job]}
          onClose={(changed) => {
            setAsked(null);
            if (changed && asked === 'delete') void navigate('/jobs');
          }}
        />
      )}
    </>
  );
}
