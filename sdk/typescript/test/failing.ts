// Calls that must fail.

import assert from 'node:assert/strict';

import { BinderyError } from '../src/index.js';

/** Asserts that a call fails, and returns its error. */
export async function failing(call: Promise<unknown>): Promise<BinderyError> {
  const error = await call.then(
    () => assert.fail('the call must fail'),
    (thrown: unknown) => thrown,
  );
  assert.ok(error instanceof BinderyError, String(error));
  return error;
}
