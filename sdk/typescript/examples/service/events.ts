// Streams the progress of a request to bind by Server-Sent Events, from a watch.

import type { ServerResponse } from 'node:http';

import type { Client } from '@bindery/sdk';
import { Phase, type BindableResourcesRequest } from '@bindery/sdk/v1alpha2';

import { COMMENT_EVERY_MS, STREAM_AGE_MAX_MS, UNREAD_MAX } from './limits.js';

/** A request to bind, by its cluster and name. */
export interface RequestKey {
  readonly cluster: string;
  readonly name: string;
}

/**
 * Writes an event for each change of a request until it has succeeded or failed. The id of an event is the token by which another
 * stream resumes behind the event before it, so that nothing is lost; an event may come twice.
 *
 * @param signal - Ends the stream, as when the service ends.
 */
export async function streamProgress(
  client: Client,
  key: RequestKey,
  lastEventId: string,
  response: ServerResponse,
  signal: AbortSignal,
): Promise<void> {
  const controller = new AbortController();
  const end = () => controller.abort();
  response.once('close', end);
  signal.addEventListener('abort', end);
  const age = setTimeout(end, STREAM_AGE_MAX_MS);
  const comment = setInterval(() => {
    if (response.headersSent) response.write(': alive\n\n');
  }, COMMENT_EVERY_MS);
  const filter = { clusterIdentity: key.cluster, names: [key.name], resumeToken: lastEventId };
  const watch = client.watchBindableResourcesRequests(filter, { signal: controller.signal });
  try {
    for await (const event of watch) {
      if (response.writableLength > UNREAD_MAX) return;
      if (event.type === 'disconnected') {
        // Before anything was sent, the error is the answer; later the watch goes on by itself.
        if (response.headersSent) response.write(': the backend is away\n\n');
        else if (event.error !== undefined) throw event.error;
      } else if (event.type !== 'connected' || event.resumed) {
        open(response);
      }
      if (event.type === 'applied') {
        send(response, 'progress', watch.resumeToken, shown(event.object));
        if (isFinished(event.object)) return;
      } else if (event.type === 'removed') {
        send(response, 'removed', watch.resumeToken, { name: event.removed.name });
        return;
      }
    }
  } catch (error) {
    if (!controller.signal.aborted) throw error;
  } finally {
    clearTimeout(age);
    clearInterval(comment);
    signal.removeEventListener('abort', end);
    response.off('close', end);
    watch.close();
  }
}

function open(response: ServerResponse): void {
  if (response.headersSent) return;
  // `X-Accel-Buffering` makes nginx pass events on at once.
  response.writeHead(200, { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' });
  response.write('retry: 2000\n\n');
}

function send(response: ServerResponse, event: string, id: string, data: object): void {
  const head = id === '' ? '' : `id: ${id}\n`;
  response.write(`${head}event: ${event}\ndata: ${JSON.stringify(data)}\n\n`);
}

/** What a portal shows of a request. */
export function shown({ metadata, spec, status }: BindableResourcesRequest): object {
  return {
    name: metadata?.name,
    template: spec?.templateRef?.name,
    cluster: spec?.clusterIdentity?.identity,
    phase: Phase[status?.phase ?? Phase.UNSPECIFIED],
    conditions: status?.conditions.map(({ type, status: is, reason, message }) => ({ type, status: is, reason, message })) ?? [],
  };
}

function isFinished({ status }: BindableResourcesRequest): boolean {
  return status?.phase === Phase.SUCCEEDED || status?.phase === Phase.FAILED;
}
