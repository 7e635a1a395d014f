/** Submits a job: a form and its YAML side by side. The server's dry run says at which field each error is. */

import {
  ActionGroup,
  Alert,
  Button,
  Content,
  Form,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  HelperText,
  HelperTextItem,
  PageSection,
  Spinner,
  TextInput,
  Title,
} from '@patternfly/react-core';
import { useQuery } from '@tanstack/react-query';
import { Suspense, lazy, useEffect, useMemo, useState } from 'react';
import { useNavigate, useSearchParams } from 'react-router';
import { Problem, get, post } from './api';
import { fieldOf, marksOf, read, syntaxMarks, valueOf, withValue } from './draft';
import { kindNames } from './format';
import { Command, Trouble } from './parts';
import type { FormField, Kind, SubmitAnswer, SubmitForm } from './types';

const Editor = lazy(() => import('./editor'));

const kinds: Kind[] = ['trainjob', 'mpijob', 'optimizationjob'];
/** Milliseconds without typing after which the server is asked. */
const PAUSE = 700;

/** A text that outlives errors, reloads and sign-ins, in this tab alone. */
function useKept(key: string, first: string): [string, (text: string) => void] {
  const name = `trainyard-draft:${key}`;
  const [text, setText] = useState(() => sessionStorage.getItem(name) ?? first);
  return [
    text,
    (next) => {
      if (next === first) sessionStorage.removeItem(name);
      else sessionStorage.setItem(name, next);
      setText(next);
    },
  ];
}

interface FieldProps {
  field: FormField;
  value: string;
  errors: string[];
  isDisabled: boolean;
  onChange: (value: string) => void;
}

function Field({ field, value, errors, isDisabled, onChange }: FieldProps) {
  const id = field.path.join('.');
  const [typed, setTyped] = useState(value);
  // what the editor changes shows here, too
  useEffect(() => setTyped(value), [value]);
  return (
    <FormGroup label={field.label} fieldId={id}>
      <TextInput
        id={id}
        value={typed}
        isDisabled={isDisabled}
        validated={errors.length > 0 ? 'error' : 'default'}
        aria-describedby={`${id}-help`}
        list={field.offers.length > 0 ? `${id}-offers` : undefined}
        onChange={(_event, next) => {
          setTyped(next);
          onChange(next);
        }}
      />
      {field.offers.length > 0 && (
        <datalist id={`${id}-offers`}>
          {field.offers.map((offer) => (
            <option key={offer} value={offer} />
          ))}
        </datalist>
      )}
      <FormHelperText>
        <HelperText id={`${id}-help`} isLiveRegion>
          {errors.map((error) => (
            <HelperTextItem key={error} variant="error">
              {error}
            </HelperTextItem>
          ))}
          {errors.length === 0 && field.help !== '' && <HelperTextItem>{field.help}</HelperTextItem>}
        </HelperText>
      </FormHelperText>
    </FormGroup>
  );
}

function Filled({ form, draftKey }: { form: SubmitForm; draftKey: string }) {
  const navigate = useNavigate();
  const [text, setText] = useKept(draftKey, form.draft);
  const [answer, setAnswer] = useState<{ text: string; answer: SubmitAnswer } | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const [isBusy, setBusy] = useState(false);
  const document = useMemo(() => read(text), [text]);
  const isYaml = document.errors.length === 0;
  // an answer is about the text that was asked about
  const latest = answer?.text === text ? answer.answer : null;
  const faults = latest?.faults ?? [];
  const marks = useMemo(() => (isYaml ? marksOf(document, faults) : syntaxMarks(document)), [document, isYaml, answer]);

  const ask = async (dryRun: boolean): Promise<SubmitAnswer | null> => {
    try {
      const told = await post<SubmitAnswer>('/api/submit', { object: document.toJS({ maxAliasCount: 100 }) as unknown, dryRun });
      setAnswer({ text, answer: told });
      setProblem(null);
      return told;
    } catch (error) {
      setProblem(error instanceof Problem ? error : new Problem('badRequest', error instanceof Error ? error.message : String(error)));
      return null;
    }
  };

  useEffect(() => {
    if (!isYaml) return;
    const timer = setTimeout(() => void ask(true), PAUSE);
    return () => clearTimeout(timer);
  }, [text]);

  const create = async () => {
    setBusy(true);
    const told = await ask(false);
    setBusy(false);
    if (told?.ok === true) {
      sessionStorage.removeItem(`trainyard-draft:${draftKey}`);
      void navigate(told.address);
    }
  };
  const elsewhere = faults.filter((fault) => fieldOf(fault, form.fields) === undefined);
  return (
    <>
      <Trouble problem={problem} />
      <div aria-live="polite">
        {!isYaml && <Alert variant="danger" isInline title={`The YAML has a syntax error: ${syntaxMarks(document)[0]?.message ?? ''}. The form works again when you correct it.`} />}
        {isYaml && latest !== null && !latest.ok && (faults.length === 0 || elsewhere.length > 0) && (
          <Alert variant="danger" isInline title={elsewhere.length === 0 ? latest.message : 'The server rejects this job. Correct these fields:'}>
            {elsewhere.map((fault) => (
              <p key={fault.field + fault.message}>
                {fault.field === '' ? '' : `${fault.field}: `}
                {fault.message}
              </p>
            ))}
          </Alert>
        )}
        {isYaml && latest?.ok === true && <Alert variant="success" isInline title={latest.message} />}
      </div>
      <div className="charts">
        <Form
          onSubmit={(event) => {
            event.preventDefault();
            void create();
          }}
        >
          {form.fields.map((field) => (
            <Field
              key={field.path.join('.')}
              field={field}
              value={isYaml ? valueOf(document, field) : ''}
              errors={isYaml ? faults.filter((fault) => fieldOf(fault, form.fields) === field).map((fault) => fault.message) : []}
              isDisabled={!isYaml}
              onChange={(value) => setText(withValue(text, field, value))}
            />
          ))}
          <ActionGroup>
            <Button type="submit" isDisabled={!isYaml || isBusy} isLoading={isBusy}>
              Submit
            </Button>
            <Button variant="link" onClick={() => setText(form.draft)} isDisabled={text === form.draft}>
              Start over
            </Button>
          </ActionGroup>
        </Form>
        <section>
          <Title headingLevel="h2" size="md">
            YAML
          </Title>
          <Suspense fallback={<Spinner aria-label="Loading the editor" />}>
            <Editor text={text} label="The job as YAML" marks={marks} onChange={setText} />
          </Suspense>
          <Content component="p">The same in a terminal, with this text in job.yaml:</Content>
          <Command command={form.command} label="The same in a terminal" />
        </section>
      </div>
    </>
  );
}

export default function SubmitPage() {
  const [parameters, setParameters] = useSearchParams();
  const from = parameters.get('from');
  const kind = (parameters.get('kind') ?? 'trainjob') as Kind;
  const key = from === null ? kind : `from ${from}`;
  const query = new URLSearchParams(from === null ? { kind } : { from }).toString();
  const { data: form, error } = useQuery({
    queryKey: ['form', query],
    queryFn: ({ signal }) => get<SubmitForm>(`/api/submit?${query}`, signal),
    staleTime: Infinity,
  });
  const problem = error instanceof Problem ? error : null;

  useEffect(() => {
    document.title = 'New job · Trainyard';
  }, []);

  return (
    <PageSection>
      <Title headingLevel="h1">{from === null ? 'New job' : `Copy of ${from.split('/').at(-1) ?? ''}`}</Title>
      {from === null && (
        <FormSelect aria-label="Kind" value={kind} onChange={(_event, next) => setParameters({ kind: next })} className="kind">
          {kinds.map((one) => (
            <FormSelectOption key={one} value={one} label={kindNames[one]} />
          ))}
        </FormSelect>
      )}
      <Trouble problem={problem} />
      {form === undefined && problem === null && <Spinner aria-label="Loading the form" />}
      {form !== undefined && <Filled key={key} form={form} draftKey={key} />}
    </PageSection>
  );
}
