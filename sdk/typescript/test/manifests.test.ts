// Manifests: the golden files of all SDKs, and what is shown of a secret.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inspect } from 'node:util';

import { fromJson, type JsonValue } from '@bufbuild/protobuf';

import { RefusedError, manifests, type ManifestOptions } from '../src/index.js';
import { BindingResourceResponseSchema } from '../src/v1alpha2.js';

/** The folder of the golden files, from the folder of the compiled tests. */
const GOLDEN = process.env['BINDERY_GOLDEN'] ?? fileURLToPath(new URL('../../../contract/manifests/', import.meta.url));

interface Golden {
  readonly name: string;
  readonly input: { readonly response: JsonValue; readonly options: ManifestOptions };
  readonly canonical?: string;
  readonly documents?: JsonValue[];
  readonly refusal?: { readonly reason: string };
}

const goldens = readdirSync(GOLDEN)
  .filter((name) => name.endsWith('.json'))
  .map((name) => JSON.parse(readFileSync(join(GOLDEN, name), 'utf8')) as Golden);

function make({ input }: Golden): { canonical: string; documents: unknown } | { refusal: string } {
  try {
    const made = manifests(fromJson(BindingResourceResponseSchema, input.response), input.options);
    return { canonical: made.canonical(), documents: made.documents };
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error;
    return { refusal: error.reason };
  }
}

test('there are golden files of both kinds', () => {
  assert.ok(goldens.some(({ canonical }) => canonical !== undefined));
  assert.ok(goldens.some(({ refusal }) => refusal !== undefined));
});

for (const golden of goldens) {
  test(`golden file ${golden.name}`, () => {
    const made = make(golden);
    if (golden.refusal !== undefined) assert.deepEqual(made, { refusal: golden.refusal.reason });
    else assert.deepEqual(made, { canonical: golden.canonical, documents: golden.documents });
  });
}

test('what is logged of manifests holds no secret', () => {
  const golden = goldens.find(({ name }) => name === 'binding');
  assert.ok(golden);
  const made = manifests(fromJson(BindingResourceResponseSchema, golden.input.response), golden.input.options);
  const response = golden.input.response as { kubeconfig: { kubeconfig: string } };
  const secret = response.kubeconfig.kubeconfig;
  assert.ok(made.canonical().includes(secret));
  for (const shown of [inspect(made, { depth: null }), inspect([...made], { depth: null }), JSON.stringify(made), String(made)]) {
    assert.ok(!shown.includes(secret), shown);
  }
  assert.ok(JSON.stringify([...made]).includes(secret), 'what is applied has the content');
});
