// Which errors end a watch.

import type { BinderyError } from '../errors/error.js';
import type { StatusCode } from '../errors/codes.js';

const FINAL_CODES: ReadonlySet<StatusCode> = new Set<StatusCode>([
  'UNAUTHENTICATED',
  'PERMISSION_DENIED',
  'NOT_FOUND',
  'INVALID_ARGUMENT',
  'FAILED_PRECONDITION',
  'UNIMPLEMENTED',
]);

/** Whether another stream cannot help. */
export function isFinal({ details }: BinderyError): boolean {
  switch (details.kind) {
    case 'status':
      return FINAL_CODES.has(details.code);
    case 'token':
      return details.reason === 'LoggedOut';
    case 'cancelled':
      return true;
    default:
      return false;
  }
}
