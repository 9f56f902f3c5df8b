// The canonical form of manifests, which is the same in all SDKs.

import { compareText } from './resource.js';

/** A value of JSON without numbers, which no manifest has. */
export type Json = string | readonly Json[] | { readonly [key: string]: Json };

/**
 * Writes JSON without insignificant space, with keys in the order of their bytes in UTF-8. In texts, only what JSON requires is
 * escaped.
 */
export function canonicalJson(value: Json): string {
  if (typeof value === 'string') return JSON.stringify(value);
  if (isList(value)) return `[${value.map(canonicalJson).join(',')}]`;
  const entries = Object.entries(value).sort(([one], [other]) => compareText(one, other));
  return `{${entries.map(([key, item]) => `${JSON.stringify(key)}:${canonicalJson(item)}`).join(',')}}`;
}

function isList(value: Json): value is readonly Json[] {
  return Array.isArray(value);
}
