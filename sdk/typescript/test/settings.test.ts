// Addresses, settings, and the decisions about retries.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { create } from '@bufbuild/protobuf';

import { isIdempotent, serverWaitMs, times } from '../src/method.js';
import { protocolError, statusError, transportError, type BinderyError } from '../src/errors/error.js';
import { Client, ConfigError, VERSION, audience, type ClientOptions } from '../src/index.js';
import { DEFAULT_RETRY, delay, nextAttempt } from '../src/retry.js';
import {
  BindingService,
  CatalogService,
  ContractService,
  CredentialService,
  DeleteExportRequestSchema,
  ExportService,
  GetExportRequestSchema,
  ProviderService,
} from '../src/v1alpha2.js';
import { Authority } from './certificates.js';

function reason(address: string, options: ClientOptions = {}): string {
  try {
    return new Client(address, options).audience;
  } catch (error) {
    assert.ok(error instanceof ConfigError, String(error));
    return error.reason;
  }
}

test('one address has one audience', () => {
  const spellings = {
    'https://bind.example.com': 'https://bind.example.com',
    'https://bind.example.com/': 'https://bind.example.com',
    'HTTPS://BIND.Example.com:0443/': 'https://bind.example.com',
    'bind.example.com': 'https://bind.example.com',
    'bind.example.com:8443': 'https://bind.example.com:8443',
    'https://bind.example.com:80': 'https://bind.example.com:80',
    'http://127.0.0.1:80': 'http://127.0.0.1',
    'https://[2001:DB8:0:0::1]:443': 'https://[2001:db8::1]',
    '[::1]:6443': 'https://[::1]:6443',
    '[::ffff:1.2.3.4]': 'https://[::ffff:1.2.3.4]',
    'https://proxy.example.com/a/bindery/': 'https://proxy.example.com/a/bindery',
  };
  for (const [spelling, expect] of Object.entries(spellings)) {
    assert.equal(audience(spelling), expect);
    assert.equal(audience(expect), expect);
  }
});

test('what is no address is refused', () => {
  const faults = {
    '': /no host/,
    'https://': /no host/,
    'https://:443': /no host/,
    'ftp://bind.example.com': /neither https nor http/,
    'https://bind.example.com/a//b': /plain segments/,
    'https://bind.example.com/a/../b': /plain segments/,
    'https://bind.example.com?x': /a query/,
    'https://me@bind.example.com': /a user/,
    'https://bind.example.com:0': /between 1 and 65535/,
    'https://bind.example.com:65536': /between 1 and 65535/,
    'https://bind.example.com:+443': /no number/,
    'https://bind.example.com:': /between 1 and 65535/,
    'https://bind..example.com': /no DNS name/,
    'https://1.2.3': /no DNS name/,
    'https://bücher.example': /no DNS name/,
    'https://[::1': /not closed/,
    'https://[::1]x': /other than a port/,
    'https://[host]': /no IPv6/,
    'https://[fe80::1%eth0]': /no IPv6/,
  };
  for (const [text, fault] of Object.entries(faults)) assert.throws(() => audience(text), fault, text);
});

test('plaintext is for loopback, by request', () => {
  const allowed = { allowPlaintext: true };
  assert.equal(reason('http://127.9.9.9:8080', allowed), 'http://127.9.9.9:8080');
  assert.equal(reason('http://[::1]:8080', allowed), 'http://[::1]:8080');
  assert.equal(reason('http://LOCALHOST:8080', allowed), 'http://localhost:8080');
  assert.equal(reason('http://127.0.0.1:8080'), 'PlaintextRefused');
  assert.equal(reason('http://10.0.0.1:8080', allowed), 'PlaintextRefused');
  assert.equal(reason('http://localhost.example.com', allowed), 'PlaintextRefused');
  assert.equal(reason('http://127.0.0.1.example.com', allowed), 'PlaintextRefused');
});

test('settings that cannot work are refused at once', () => {
  const address = 'https://bind.example.com';
  const [one, other] = [new Authority(), new Authority()];
  const [leaf, stranger] = [one.sign('DNS:a'), other.sign('DNS:a')];
  assert.equal(reason(address, { ca: 'no certificate' }), 'CaInvalid');
  assert.equal(reason(address, { ca: '-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n' }), 'CaInvalid');
  assert.equal(reason(address, { caFile: '/nonexistent' }), 'CaInvalid');
  assert.equal(reason(address, { ca: one.pem, caFile: 'x' }), 'CaInvalid');
  assert.equal(reason(address, { ca: Buffer.from(one.pem) }), address);
  assert.equal(reason(address, { clientCertificate: { certificate: leaf.cert, key: leaf.key } }), address);
  assert.equal(reason(address, { clientCertificate: { certificate: leaf.cert, key: stranger.key } }), 'ClientCertificateInvalid');
  assert.equal(reason(address, { clientCertificate: { certificate: leaf.cert, key: 'no key' } }), 'ClientCertificateInvalid');
  assert.equal(reason(address, { serverName: 'not a name' }), 'SettingInvalid');
  assert.equal(reason(address, { userAgent: 'line\nbreak' }), 'UserAgentInvalid');
  assert.equal(reason(address, { timeoutMs: 0 }), 'SettingInvalid');
  assert.equal(reason(address, { timeoutMs: Number.NaN }), 'SettingInvalid');
  assert.equal(reason(address, { attemptTimeoutMs: 2 ** 40 }), 'SettingInvalid');
  assert.equal(reason(address, { retry: { attempts: 0 } }), 'SettingInvalid');
});

test('time limits follow the wait unless they are set', () => {
  assert.deepEqual(times(undefined, undefined, 0), { totalMs: 30_000, attemptMs: 10_000 });
  assert.deepEqual(times(undefined, undefined, 60_000), { totalMs: 90_000, attemptMs: 70_000 });
  assert.deepEqual(times(5_000, undefined, 60_000), { totalMs: 5_000, attemptMs: 5_000 });
  assert.deepEqual(times(50_000, 7_000, 60_000), { totalMs: 50_000, attemptMs: 7_000 });
});

test('the wait is that of the request, within bounds', () => {
  const wait = (seconds?: bigint) =>
    serverWaitMs(DeleteExportRequestSchema, create(DeleteExportRequestSchema, seconds === undefined ? {} : { wait: { seconds } }));
  assert.deepEqual([wait(), wait(0n), wait(5n), wait(-5n)], [30_000, 0, 5_000, 30_000]);
  assert.equal(wait(1_000_000_000n), 86_400_000);
  assert.equal(serverWaitMs(GetExportRequestSchema, create(GetExportRequestSchema)), 0);
});

test('only renewal may not be repeated', () => {
  const services = [BindingService, CatalogService, ContractService, CredentialService, ExportService, ProviderService];
  const methods = services.flatMap((service) => service.methods);
  assert.equal(methods.length, 24);
  assert.deepEqual(methods.filter((method) => !isIdempotent(method)).map(({ name }) => name), ['RenewKubeconfig']);
});

test('delays are bounded, and never shorter than asked', () => {
  for (const failures of [0, 1, 2, 5, 31, 32, 1000]) {
    for (const random of [-1, 0, 0.5, 1, 2]) {
      const ms = delay(DEFAULT_RETRY, failures, 700, random);
      assert.ok(ms >= 700 && ms <= 700 + DEFAULT_RETRY.capMs, `${failures} ${random}: ${ms}`);
    }
  }
  assert.deepEqual([1, 2, 3, 4, 5, 6, 7].map((failures) => delay(DEFAULT_RETRY, failures, 0, 1)), [200, 400, 800, 1600, 3200, 5000, 5000]);
});

test('retries are decided by what the connection did', () => {
  const next = (error: BinderyError, isSafe: boolean) => nextAttempt(DEFAULT_RETRY, error, isSafe, 1, 60_000, 0);
  const broken = (fault: 'refused' | 'broken' | 'certificateUntrusted', connecting: boolean) =>
    transportError({ address: 'a', fault, detail: '', connecting });
  assert.equal(next(broken('refused', true), false), 0);
  assert.equal(next(broken('broken', false), true), 0);
  assert.equal(next(broken('broken', false), false), undefined);
  assert.equal(next(broken('certificateUntrusted', true), true), undefined);
  assert.equal(next(protocolError('a', 'b'), true), undefined);
  const busy = statusError({ code: 'UNAVAILABLE', requestId: '', retryAfterMs: 3_000 });
  assert.equal(nextAttempt(DEFAULT_RETRY, busy, true, 5, 60_000, 0), undefined, 'attempts end');
  assert.equal(nextAttempt(DEFAULT_RETRY, busy, true, 1, 2_000, 0), undefined, 'the wait outlasts the deadline');
});

test('the version is that of the package', () => {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  assert.equal((JSON.parse(text) as { version: string }).version, VERSION);
});
