/** Asks before jobs are changed: what will happen to each, and the same as a command. */

import { Alert, Button, Content, List, ListItem, Modal, ModalBody, ModalFooter, ModalHeader, Spinner } from '@patternfly/react-core';
import { useEffect, useState } from 'react';
import { Problem, post } from './api';
import type { Meant, Outcome, Verb } from './types';

const titles: Record<Verb, string> = { suspend: 'Suspend', resume: 'Resume', delete: 'Delete' };

interface Asked {
  verb: Verb;
  jobs: Meant[];
  /** `changed`: whether anything was done. */
  onClose: (changed: boolean) => void;
}

export function AskAction({ verb, jobs, onClose }: Asked) {
  const [plan, setPlan] = useState<Outcome[] | null>(null);
  const [done, setDone] = useState<Outcome[] | null>(null);
  const [trouble, setTrouble] = useState('');
  const [isBusy, setBusy] = useState(false);

  const send = (dryRun: boolean) =>
    post<Outcome[]>('/api/actions', {
      verb,
      jobs: jobs.map(({ kind, namespace, name, uid }) => ({ kind, namespace, name, uid })),
      dryRun,
    });
  const say = (error: unknown) => setTrouble(error instanceof Problem ? error.message : String(error));

  useEffect(() => {
    send(true).then(setPlan, say);
    // the jobs of a question do not change
    // eslint-disable-next-line
  }, []);

  const act = async () => {
    setBusy(true);
    setTrouble('');
    try {
      const outcomes = await send(false);
      if (outcomes.every((outcome) => outcome.ok)) onClose(true);
      else setDone(outcomes);
    } catch (error) {
      say(error);
    } finally {
      setBusy(false);
    }
  };

  const shown = done ?? plan;
  const possible = plan?.filter((outcome) => outcome.ok).length ?? 0;
  const title = `${titles[verb]} ${jobs.length === 1 ? (jobs[0]?.name ?? '') : `${jobs.length} jobs`}?`;
  return (
    <Modal variant="medium" isOpen onClose={() => onClose(done !== null)} aria-labelledby="action-title">
      <ModalHeader title={title} labelId="action-title" titleIconVariant={verb === 'delete' ? 'warning' : 'info'} />
      <ModalBody tabIndex={0} aria-label="What will happen">
        {trouble !== '' && <Alert variant="danger" isInline isLiveRegion title={trouble} />}
        {done !== null && <Alert variant="warning" isInline isLiveRegion title="Not all of it was done:" />}
        {shown === null && trouble === '' && <Spinner aria-label="Looking at what will happen" />}
        <List isPlain>
          {shown?.map((outcome) => (
            <ListItem key={`${outcome.kind}/${outcome.namespace}/${outcome.name}`}>
              <strong>{outcome.name}</strong> ({outcome.namespace}): {outcome.ok ? '' : 'not possible: '}
              {outcome.message}
              {outcome.command !== '' && (
                <Content component="p">
                  <code>{outcome.command}</code>
                </Content>
              )}
            </ListItem>
          ))}
        </List>
      </ModalBody>
      <ModalFooter>
        {done === null && (
          <Button
            variant={verb === 'delete' ? 'danger' : 'primary'}
            isDisabled={possible === 0 || isBusy}
            isLoading={isBusy}
            onClick={() => void act()}
          >
            {titles[verb]}
          </Button>
        )}
        <Button variant="link" onClick={() => onClose(done !== null)}>
          {done === null ? 'Cancel' : 'Close'}
        </Button>
      </ModalFooter>
    </Modal>
  );
}
