// Starts the service. All it takes is in its environment:
//
// - BIND_SERVER: URL of the backend
// - BIND_CA_FILE: CA of its certificate; if absent, those of the system
// - PORT: port of this service, 8080 if absent; HOST: its address, 127.0.0.1 if absent, for a proxy with TLS in front of it
//
// A signal ends it: streams are told to come back, calls have ten seconds to end.

import { Client } from '@bindery/sdk';

import { makeService } from './service.js';

const { BIND_SERVER, BIND_CA_FILE, PORT = '8080', HOST = '127.0.0.1' } = process.env;
if (BIND_SERVER === undefined) throw new Error('BIND_SERVER is not set; give the URL of the backend');

const client = new Client(BIND_SERVER, { caFile: BIND_CA_FILE, userAgent: 'portal-service/0.1' });
const service = makeService(client);
service.server.listen(Number(PORT), HOST, () => console.log(`listening on http://${HOST}:${PORT} for ${client.address}`));

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    service.end().then(
      () => console.log('ended'),
      (error: unknown) => console.error(error),
    );
  });
}
