/** A job's YAML, and the fields of a form in it. Comments and order stay as they are. */

import { type Document, isCollection, isMap, isNode, parseDocument } from 'yaml';
import type { Mark } from './editor';
import type { Fault, FormField } from './types';

export type Path = (string | number)[];

/** The way to a field; numbers are places in lists. */
export function wayOf(field: FormField): Path {
  return field.path.map((member) => (/^\d+$/.test(member) ? Number(member) : member));
}

export function read(text: string): Document {
  return parseDocument(text, { strict: true, uniqueKeys: true });
}

/** A word that needs no shell. */
const PLAIN = /^[\w./=:,@%+$()-]+$/;

/** A command as one types it: a script for a shell, or words. */
export function commandText(value: unknown): string {
  if (!Array.isArray(value)) return value === undefined || value === null ? '' : String(value);
  const words = value.map(String);
  if (words.length === 3 && /^(ba)?sh$/.test(words[0] ?? '') && words[1] === '-c') return words[2] ?? '';
  return words.map((word) => (PLAIN.test(word) ? word : JSON.stringify(word))).join(' ');
}

/** A command from what was typed: words where they are plain, else a script for bash. */
export function commandOf(text: string): string[] {
  const words = text.trim().split(/\s+/);
  return words.every((word) => PLAIN.test(word)) ? words : ['bash', '-c', text];
}

/** What a field shows. */
export function valueOf(document: Document, field: FormField): string {
  const value = document.getIn(wayOf(field));
  const plain = isNode(value) ? value.toJS(document) : value;
  if (field.input === 'command') return commandText(plain);
  return plain === undefined || plain === null ? '' : String(plain);
}

/** The text with another value of a field; without one, the field goes, and what is empty then. */
export function withValue(text: string, field: FormField, typed: string): string {
  const document = read(text);
  const way = wayOf(field);
  if (typed === '') {
    if (document.hasIn(way)) document.deleteIn(way);
    for (let end = way.length - 1; end > 0; end -= 1) {
      const parent = document.getIn(way.slice(0, end), true);
      if (!isMap(parent) || parent.items.length > 0) break;
      document.deleteIn(way.slice(0, end));
    }
    return document.toString({ lineWidth: 0 });
  }
  const number = Number(typed);
  const value = field.input === 'command' ? document.createNode(commandOf(typed), { flow: true }) : field.input === 'number' && Number.isFinite(number) ? number : typed;
  document.setIn(way, value);
  return document.toString({ lineWidth: 0 });
}

// some errors of upstream's webhooks call fields as its program does: spec.RuntimeRef
const isSame = (a: string | number | undefined, b: string | number | undefined) => String(a).toLowerCase() === String(b).toLowerCase();

/** Where errors of the server stand in the text: at the value, or else at what would hold it. */
export function marksOf(document: Document, faults: Fault[]): Mark[] {
  return faults.map(({ path, message, field }) => {
    for (let end = path.length; end > 0; end -= 1) {
      const way = path.slice(0, end);
      const parent = document.getIn(way.slice(0, -1), true);
      // a name that the server does not know is marked itself
      if (isMap(parent)) {
        const pair = parent.items.find((item) => isSame(isNode(item.key) ? (item.key.toJS(document) as string) : String(item.key), way.at(-1)));
        if (pair !== undefined && isNode(pair.key) && pair.key.range) {
          const value = isNode(pair.value) && !isCollection(pair.value) ? pair.value.range : undefined;
          return { from: pair.key.range[0], to: (value ?? pair.key.range)[1], message: `${field}: ${message}` };
        }
      }
      const node = document.getIn(way, true);
      if (isNode(node) && node.range) return { from: node.range[0], to: node.range[1], message: `${field}: ${message}` };
    }
    return { from: 0, to: 0, message: field === '' ? message : `${field}: ${message}` };
  });
}

/** What is wrong with the text itself. */
export function syntaxMarks(document: Document): Mark[] {
  return document.errors.map((error) => ({ from: error.pos[0], to: error.pos[1], message: error.message.split('\n')[0] ?? '' }));
}

/** The field that an error is about: it, something in it, or what holds it and no other field. */
export function fieldOf(fault: Fault, fields: FormField[]): FormField | undefined {
  const begins = (path: Path, way: Path) => way.length > 0 && way.every((member, at) => isSame(path[at], member));
  const within = fields.filter((field) => begins(fault.path, wayOf(field)));
  if (within.length > 0) return within[0];
  const under = fields.filter((field) => begins(wayOf(field), fault.path));
  return under.length === 1 ? under[0] : undefined;
}
