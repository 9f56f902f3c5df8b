// Reads an error response with its details.

import type { DescMessage, MessageShape } from '@bufbuild/protobuf';
import { fromBinary } from '@bufbuild/protobuf';
import type { Duration } from '@bufbuild/protobuf/wkt';
import type { ConnectError } from '@connectrpc/connect';

import { ERROR_DOMAIN, codeName } from '../errors/codes.js';
import { statusError, type BinderyError } from '../errors/error.js';
import { printable } from '../errors/text.js';
import {
  BadRequestSchema,
  ErrorInfoSchema,
  PreconditionFailureSchema,
  RequestInfoSchema,
  RetryInfoSchema,
} from '../gen/google/rpc/error_details_pb.js';

/** Makes the error of a status that the server sent. Details that are malformed or unknown are left out. */
export function parseStatus(error: ConnectError, sentId: string): BinderyError {
  const detail = <D extends DescMessage>(desc: D) => findDetail(error, desc);
  const info = detail(ErrorInfoSchema);
  const ours = info?.domain === ERROR_DOMAIN ? info : undefined;
  const reason = printable(ours?.reason ?? '');
  const retryAfterMs = milliseconds(detail(RetryInfoSchema)?.retryDelay);
  const ids = [detail(RequestInfoSchema)?.requestId, error.metadata.get('x-request-id'), sentId];
  return statusError({
    code: codeName(error.code),
    ...(reason !== '' && { reason }),
    message: printable(error.rawMessage),
    metadata: Object.fromEntries(
      Object.entries(ours?.metadata ?? {}).map(([key, value]) => [printable(key), printable(value)]),
    ),
    fieldViolations: (detail(BadRequestSchema)?.fieldViolations ?? []).map(({ field, description }) => ({
      field: printable(field),
      description: printable(description),
    })),
    preconditionViolations: (detail(PreconditionFailureSchema)?.violations ?? []).map((violation) => ({
      type: printable(violation.type),
      subject: printable(violation.subject),
      description: printable(violation.description),
    })),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
    requestId: printable(ids.find((id) => id !== undefined && id !== null && id !== '') ?? ''),
  });
}

function findDetail<D extends DescMessage>(error: ConnectError, desc: D): MessageShape<D> | undefined {
  for (const detail of error.details) {
    if (!('value' in detail && 'type' in detail) || detail.type !== desc.typeName) continue;
    try {
      return fromBinary(desc, detail.value);
    } catch {
      return undefined;
    }
  }
  return undefined;
}

function milliseconds(duration: Duration | undefined): number | undefined {
  if (duration === undefined) return undefined;
  const ms = Number(duration.seconds) * 1000 + duration.nanos / 1_000_000;
  return ms >= 0 ? Math.ceil(ms) : undefined;
}
