// Errors and events as the contract suite writes them, and what is shown of values.

import { inspect } from 'node:util';

import { toJson, type DescMessage, type JsonObject, type JsonValue, type Message } from '@bufbuild/protobuf';

import { BinderyError, ConfigError, RefusedError, type WatchEvent } from '../../src/index.js';

/** Writes an error, with the fields that it has. */
export function errorJson(error: unknown): JsonObject {
  if (error instanceof RefusedError) return { kind: 'refusal', reason: error.reason, message: error.message };
  if (error instanceof ConfigError) return { kind: 'config', reason: error.reason, message: error.message };
  if (!(error instanceof BinderyError)) return { kind: 'unexpected', message: inspect(error) };
  const { details, kind, message } = error;
  if (details.kind === 'transport') {
    const fault = `${details.fault.charAt(0).toUpperCase()}${details.fault.slice(1)}`;
    return { kind, message, fault, reason: error.reason };
  }
  if (details.kind !== 'status') return { kind, message, reason: error.reason };
  const { fieldViolations, preconditionViolations, retryAfterMs, metadata } = details;
  const reason = details.reason ?? details.unknownReason;
  return {
    kind,
    message,
    code: details.code,
    requestId: details.requestId,
    ...(reason !== undefined && { reason }),
    ...(Object.keys(metadata).length > 0 && { metadata: { ...metadata } }),
    ...(fieldViolations.length > 0 && { fieldViolations: fieldViolations.map((violation) => ({ ...violation })) }),
    ...(preconditionViolations.length > 0 && {
      preconditionViolations: preconditionViolations.map(({ type, ...rest }) => ({ kind: type, ...rest })),
    }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
}

/** Writes an event of a watch whose objects have this schema. */
export function eventJson(schema: DescMessage, event: WatchEvent<Message>): JsonValue {
  switch (event.type) {
    case 'connected':
      return { connected: { resumed: event.resumed } };
    case 'snapshotBegin':
      return { snapshotBegin: event.refused === undefined ? {} : { refused: event.refused } };
    case 'applied':
      return { applied: toJson(schema, event.object) };
    case 'removed': {
      const { name, namespace, uid } = event.removed;
      return { removed: { ...(name && { name }), ...(namespace && { namespace }), ...(uid && { uid }) } };
    }
    case 'snapshotComplete':
      return { snapshotComplete: {} };
    case 'disconnected':
      return { disconnected: event.error === undefined ? {} : { error: errorJson(event.error) } };
  }
}

/** The texts that the language makes of a value for people who debug. */
export function shown(value: unknown): string[] {
  const texts = [inspect(value, { depth: null, showHidden: true }), String(value), JSON.stringify(value) ?? ''];
  if (value instanceof Error) return [...texts, value.stack ?? '', value.message];
  // As `console.dir` does.
  return [...texts, inspect(value, { customInspect: false, depth: null })];
}
