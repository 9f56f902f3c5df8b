// What tests change while the issuer runs, by requests with JSON.

import { newKey } from './provider.mjs';

const readJson = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  return JSON.parse(Buffer.concat(parts).toString() || 'null');
};

/**
 * Returns the handler of the control port.
 *
 * `PUT /users` replaces all users, `PUT /lifetimes` all lifetimes (in seconds). `POST /rotate` makes a new key that signs from now
 * on; `{"keep": true}` goes on publishing the former ones.
 */
export function control(settings, renew) {
  const actions = {
    'PUT /users': (users) => {
      settings.users = users;
    },
    'PUT /lifetimes': (lifetimes) => {
      settings.lifetimes = lifetimes;
    },
    'POST /rotate': async ({ keep }) => {
      settings.keys = [await newKey(settings.algorithm), ...(keep ? settings.keys : [])];
      renew();
    },
  };
  return async (request, response) => {
    try {
      const action = actions[`${request.method} ${request.url}`];
      if (action === undefined) {
        response.writeHead(404).end(`${request.method} ${request.url} is unknown`);
        return;
      }
      await action(await readJson(request));
      response.writeHead(204).end();
    } catch (error) {
      response.writeHead(500).end(String(error));
    }
  };
}
