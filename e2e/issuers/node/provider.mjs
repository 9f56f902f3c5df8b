// The provider: what `oidc-provider` is configured to do, and the store that survives a change of keys.

import { randomUUID } from 'node:crypto';

import { exportJWK, generateKeyPair } from 'jose';
import Provider from 'oidc-provider';
import { createMemoryAdapter } from 'oidc-provider/lib/adapters/memory_adapter.js';

import { interactions, page } from './pages.mjs';

const store = createMemoryAdapter();
const cookieKeys = [randomUUID()];

/** In seconds. */
const DAY = 86_400;

const CLAIMS_OF_SCOPES = {
  openid: ['sub'],
  email: ['email', 'email_verified'],
  profile: ['name', 'preferred_username'],
  groups: ['groups'],
};

/** Makes a private key in the form of a JWK. */
export async function newKey(algorithm) {
  const { privateKey } = await generateKeyPair(algorithm, { extractable: true });
  return { ...await exportJWK(privateKey), kid: randomUUID(), alg: algorithm, use: 'sig' };
}

/** Makes a provider. It reads users and lifetimes anew for each request, and keys once. */
export function makeProvider(settings) {
  const lifetime = (name) => () => settings.lifetimes[name];
  const provider = new Provider(settings.issuer, {
    adapter: store,
    claims: CLAIMS_OF_SCOPES,
    clients: settings.clients.map((client) => ({
      client_id: client.id,
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: ['authorization_code', 'refresh_token', 'urn:ietf:params:oauth:grant-type:device_code'],
      redirect_uris: client.redirect_uris,
      id_token_signed_response_alg: settings.algorithm,
    })),
    // The claims of all granted scopes are in the ID token, because programs read no other.
    conformIdTokenClaims: false,
    cookies: { keys: cookieKeys },
    enabledJWA: { idTokenSigningAlgValues: [settings.algorithm] },
    features: {
      devInteractions: { enabled: false },
      deviceFlow: {
        enabled: true,
        userCodeInputSource: (ctx, form, _out, error) => {
          const text = error?.name === 'AbortedError' ? 'You denied it.' : 'This code is not valid.';
          const problem = error ? `<p class="error">${text}</p>` : '';
          ctx.body = page('Connect a device', `${problem}${form}<button form="op.deviceInputForm">Continue</button>`);
        },
        userCodeConfirmSource: (ctx, form) => {
          ctx.body = page('Connect this device?', `${form}
            <button form="op.deviceConfirmForm">Continue</button>
            <button form="op.deviceConfirmForm" name="abort" value="yes">Deny</button>`);
        },
        successSource: (ctx) => {
          ctx.body = page('Connected', '<p id="done">Return to your device.</p>');
        },
      },
      revocation: { enabled: true },
    },
    findAccount: (_ctx, subject) => {
      const user = settings.users.find((candidate) => candidate.subject === subject);
      return user && { accountId: subject, claims: () => ({ sub: subject, ...user.claims }) };
    },
    interactions: { url: (_ctx, interaction) => `/interaction/${interaction.uid}` },
    jwks: { keys: settings.keys },
    pkce: { required: () => true },
    renderError: (ctx, out) => {
      ctx.body = page('Error', `<p class="error">${out.error}: ${out.error_description ?? ''}</p>`);
    },
    scopes: ['openid', 'offline_access', ...Object.keys(CLAIMS_OF_SCOPES)],
    ttl: {
      AccessToken: lifetime('access_token'),
      DeviceCode: lifetime('device_code'),
      Grant: DAY,
      IdToken: lifetime('id_token'),
      Interaction: DAY,
      RefreshToken: lifetime('refresh_token'),
      Session: DAY,
    },
  });
  // TLS ends at the proxy.
  provider.proxy = true;
  provider.use(interactions(provider, settings));
  return provider;
}
