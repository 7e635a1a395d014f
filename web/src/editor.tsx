/** An editor for YAML, with errors at their places. */

import { defaultKeymap, history, historyKeymap } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { HighlightStyle, syntaxHighlighting } from '@codemirror/language';
import { type Diagnostic, lintGutter, setDiagnostics } from '@codemirror/lint';
import { EditorState } from '@codemirror/state';
import { EditorView, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { useEffect, useRef } from 'react';

/** An error in a text. */
export interface Mark {
  from: number;
  to: number;
  message: string;
}

// the colours of the page, which follow its theme
const look = EditorView.theme({
  '&': { border: '1px solid var(--pf-t--global--border--color--default)', maxHeight: '70vh' },
  '&, .cm-gutters': { color: 'var(--pf-t--global--text--color--regular)', backgroundColor: 'var(--pf-t--global--background--color--primary--default)' },
  '.cm-scroller': { fontFamily: 'var(--pf-t--global--font--family--mono)', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--pf-t--global--text--color--regular)' },
  '&.cm-focused': { outline: '2px solid var(--pf-t--global--border--color--clicked)' },
  '.cm-tooltip': { color: 'var(--pf-t--global--text--color--regular)', backgroundColor: 'var(--pf-t--global--background--color--secondary--default)' },
});
const colours = HighlightStyle.define([
  { tag: tags.propertyName, fontWeight: '600' },
  { tag: tags.comment, fontStyle: 'italic' },
]);

const nonce = () => document.querySelector<HTMLMetaElement>('meta[name="nonce"]')?.content ?? '';

interface Props {
  text: string;
  label: string;
  marks: Mark[];
  onChange: (text: string) => void;
}

export default function Editor({ text, label, marks, onChange }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView | null>(null);
  const call = useRef(onChange);
  call.current = onChange;

  useEffect(() => {
    if (place.current === null) return;
    const made = new EditorView({
      parent: place.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          EditorView.cspNonce.of(nonce()),
          EditorView.contentAttributes.of({ 'aria-label': label }),
          EditorView.lineWrapping,
          lineNumbers(),
          history(),
          yaml(),
          syntaxHighlighting(colours),
          lintGutter(),
          // the tabulator leaves the editor, so that the keyboard is enough to reach what comes after it
          keymap.of([...defaultKeymap, ...historyKeymap]),
          look,
          EditorView.updateListener.of((update) => {
            if (update.docChanged) call.current(update.state.doc.toString());
          }),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, []);

  useEffect(() => {
    const now = view.current;
    // what was typed here is there already
    if (now === null || now.state.doc.toString() === text) return;
    now.dispatch({ changes: { from: 0, to: now.state.doc.length, insert: text } });
  }, [text]);

  useEffect(() => {
    const now = view.current;
    if (now === null) return;
    const end = now.state.doc.length;
    const at = (place: number) => Math.min(Math.max(place, 0), end);
    const diagnostics: Diagnostic[] = marks.map(({ from, to, message }) => ({ from: at(from), to: at(to), severity: 'error', message }));
    now.dispatch(setDiagnostics(now.state, diagnostics));
  }, [marks, text]);

  return <div ref={place} />;
}
