// The pages on which a person signs in and consents.

const escape = (text) => String(text).replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

/** Returns a whole page. `body` is HTML. */
export const page = (title, body) => `<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>${title}</title></head><body><h1>${title}</h1>${body}</body></html>`;

const loginPage = (action, problem) => page('Sign in', `${problem ? `<p class="error">${problem}</p>` : ''}
<form method="post" action="${action}">
<input type="text" name="login" autofocus><input type="password" name="password"><button>Sign in</button>
</form>`);

const consentPage = (action, params) => page(`Allow ${escape(params.client_id)}?`, `<p>It asks for: ${escape(params.scope)}</p>
<form method="post" action="${action}">
<button name="answer" value="allow">Allow</button><button name="answer" value="deny">Deny</button>
</form>`);

async function readForm(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return new URLSearchParams(Buffer.concat(parts).toString());
}

/** Records that a person lets a client do what it asked for, and returns the id of the grant. */
async function grant(provider, { grantId, params, prompt, session }) {
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingOIDCClaims } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
  if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
  return grant.save();
}

/** Returns the middleware that serves `/interaction/ID`: the form of the password, and then that of the consent. */
export const interactions = (provider, settings) => async (ctx, next) => {
  if (!ctx.path.startsWith('/interaction/')) {
    await next();
    return;
  }
  const details = await provider.interactionDetails(ctx.req, ctx.res);
  const finish = (result, mergeWithLastSubmission) => {
    ctx.respond = false;
    return provider.interactionFinished(ctx.req, ctx.res, result, { mergeWithLastSubmission });
  };
  const isLogin = details.prompt.name === 'login';
  if (ctx.method !== 'POST') {
    ctx.body = isLogin ? loginPage(ctx.path) : consentPage(ctx.path, details.params);
    return;
  }
  const form = await readForm(ctx.req);
  if (isLogin) {
    const user = settings.users.find((candidate) => candidate.name === form.get('login'));
    if (user === undefined || user.password !== form.get('password')) {
      ctx.body = loginPage(ctx.path, 'User or password is wrong.');
      return;
    }
    await finish({ login: { accountId: user.subject } }, false);
  } else if (form.get('answer') === 'allow') {
    await finish({ consent: { grantId: await grant(provider, details) } }, true);
  } else {
    await finish({ error: 'access_denied', error_description: 'the person denied it' }, false);
  }
};
