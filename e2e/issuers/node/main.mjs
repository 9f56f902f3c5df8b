// An OpenID Connect issuer for tests, made of the package `oidc-provider`.
//
// Its one argument is a JSON file: `issuer` (the URL that clients see), `algorithm`, `clients`, `users` and `lifetimes`. It listens
// without TLS on two loopback ports: one for clients, behind a proxy that terminates TLS, and one by which tests change users,
// lifetimes and keys. It prints both as one line of JSON, and ends by a signal.

import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

import { control } from './control.mjs';
import { makeProvider, newKey } from './provider.mjs';

const settings = JSON.parse(readFileSync(process.argv[2], 'utf8'));
settings.keys = [await newKey(settings.algorithm)];

// A change of keys needs a new provider. What was granted is kept, because all providers share the store of `provider.mjs`.
let serve = makeProvider(settings).callback();
const renew = () => {
  serve = makeProvider(settings).callback();
};

const listen = (handler) => new Promise((resolve, reject) => {
  const server = createServer(handler);
  server.on('error', reject);
  server.listen(0, '127.0.0.1', () => resolve(server.address().port));
});

const issuerPort = await listen((request, response) => serve(request, response));
const controlPort = await listen(control(settings, renew));
console.log(JSON.stringify({ issuer: issuerPort, control: controlPort }));
