/** Who is signed in, and the form for those who are not. */

import {
  ActionGroup,
  Alert,
  Button,
  Card,
  CardBody,
  CardTitle,
  Form,
  FormGroup,
  FormHelperText,
  HelperText,
  HelperTextItem,
  Modal,
  ModalBody,
  ModalHeader,
  Spinner,
  TextInput,
  Title,
} from '@patternfly/react-core';
import { type FormEvent, type ReactNode, createContext, useCallback, useContext, useEffect, useState } from 'react';
import { Problem, forgetHalf, get, half, keepHalf, post, remove, whenSignedOut } from './api';
import type { Who } from './types';

interface Session {
  who: Who;
  signOut: () => void;
}

const Context = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(Context);
  if (!session) throw new Error('nobody is signed in');
  return session;
}

interface Begun {
  user: string;
  half: string;
}

async function begin(credential: { code: string } | { token: string }): Promise<Who> {
  const begun = await post<Begun>('/api/session', credential);
  keepHalf(begun.half);
  return get<Who>('/api/session');
}

/** The code of a link of `trainyard dashboard`, which leaves the address at once. */
function takeCode(): string | null {
  if (window.location.pathname !== '/login') return null;
  const code = new URLSearchParams(window.location.search).get('code');
  window.history.replaceState(null, '', '/jobs');
  return code;
}

// React may render twice; a code is good once
let code: string | null | undefined;

export function SignInForm({ onDone, note }: { onDone: (who: Who) => void; note?: string | undefined }) {
  const [token, setToken] = useState('');
  const [trouble, setTrouble] = useState(note ?? '');
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    try {
      onDone(await begin({ token }));
    } catch (error) {
      setTrouble(error instanceof Problem ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <Form onSubmit={(event) => void submit(event)}>
      {trouble !== '' && <Alert variant="danger" isInline title={trouble} />}
      <FormGroup label="Token" fieldId="token" isRequired>
        <TextInput
          id="token"
          type="password"
          autoComplete="off"
          isRequired
          value={token}
          onChange={(_event, value) => setToken(value)}
        />
        <FormHelperText>
          <HelperText>
            <HelperTextItem>
              A bearer token of the API server. On this machine run <code>trainyard dashboard</code> instead; on OpenShift{' '}
              <code>oc whoami -t</code> prints yours.
            </HelperTextItem>
          </HelperText>
        </FormHelperText>
      </FormGroup>
      <ActionGroup>
        <Button type="submit" isDisabled={token === '' || isBusy} isLoading={isBusy}>
          Sign in
        </Button>
      </ActionGroup>
    </Form>
  );
}

/** Shows its children to whoever is signed in. If a session ends, the pages stay as they are behind the form, with what was typed. */
export function SessionProvider({ children }: { children: ReactNode }) {
  const [who, setWho] = useState<Who | null>(null);
  const [isOut, setOut] = useState(false);
  const [note, setNote] = useState<string>();
  const accept = useCallback((next: Who) => {
    setWho(next);
    setOut(false);
    setNote(undefined);
  }, []);
  const signOut = useCallback(() => {
    void remove('/api/session').catch(() => {});
    forgetHalf();
    setWho(null);
    setOut(true);
  }, []);

  useEffect(() => {
    whenSignedOut(() => setOut(true));
    if (code === undefined) code = takeCode();
    const given = code;
    code = null;
    const tried = given !== null ? begin({ code: given }) : half() === '' ? Promise.reject(new Problem('signedOut', '')) : get<Who>('/api/session');
    tried.then(accept, (error: unknown) => {
      setOut(true);
      if (error instanceof Problem && error.message !== '' && error.reason !== 'signedOut') setNote(error.message);
    });
  }, [accept]);

  if (who === null) {
    return isOut ? (
      <main className="sign-in">
        <Card>
          <CardTitle>
            <Title headingLevel="h1">Sign in to Trainyard</Title>
          </CardTitle>
          <CardBody>
            <SignInForm key={note} onDone={accept} note={note} />
          </CardBody>
        </Card>
      </main>
    ) : (
      <main className="sign-in">
        <Spinner aria-label="Signing in" />
      </main>
    );
  }
  return (
    <Context.Provider value={{ who, signOut }}>
      {children}
      <Modal variant="small" isOpen={isOut} aria-labelledby="again">
        <ModalHeader
          title="Your session has ended"
          labelId="again"
          description="Sign in again to go on. What you typed on this page is still there."
        />
        <ModalBody>
          <SignInForm onDone={accept} />
        </ModalBody>
      </Modal>
    </Context.Provider>
  );
}
