// A client for the Bindery backend: TLS, tokens, retries by code, typed errors, and watches that reconnect.

export { audience } from './address.js';
export {
  Bound,
  type BindOptions,
  type BindRequest,
  type ClusterIdentityInput,
  type WaitOptions,
} from './bind.js';
export type { CallOptions, UnaryMethod } from './call.js';
export { Client, type Renewed, type TemplateDetails } from './client.js';
export type { ErrorReasonName, KnownErrorReason, StatusCode } from './errors/codes.js';
export { ConfigError, type ConfigReason } from './errors/config.js';
export {
  BinderyError,
  type CancelledDetails,
  type ErrorDetails,
  type ErrorKind,
  type FieldViolation,
  type PendingDetails,
  type PreconditionViolation,
  type ProtocolDetails,
  type RequestFailedDetails,
  type StatusDetails,
  type TokenDetails,
  type TokenReason,
  type TransportDetails,
} from './errors/error.js';
export type { TransportFault } from './errors/faults.js';
export { MESSAGE_RECEIVE_MAX, MESSAGE_SEND_MAX } from './limits.js';
export { Manifests, RefusedError, manifests, type Manifest, type ManifestOptions, type RefusalReason } from './manifests/manifests.js';
export type { Pages } from './pages.js';
export type { RetryPolicy } from './retry.js';
export type { ClientCertificate, ClientOptions, Protocol } from './settings.js';
export { execToken, type ExecTokenOptions } from './tokens/exec.js';
export { fileToken } from './tokens/file.js';
export { LoggedOutError, functionToken, staticToken, type TokenInput, type TokenSource } from './tokens/source.js';
export { VERSION } from './version.js';
export type { WatchEvent } from './watch/events.js';
export type { Watch, WatchOptions } from './watch/watch.js';
