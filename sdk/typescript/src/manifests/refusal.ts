// Why the response to a bind is refused.

/** Why the response to a bind is refused, as a word that never changes. */
export type RefusalReason =
  /** The name of the binding or of the bundle is no DNS label. */
  | 'Name'
  /** The response is for another binding than the one that was asked for. */
  | 'OtherBinding'
  /** The response names no contract namespace. */
  | 'NoContract'
  /** The response exports no resource. */
  | 'Empty'
  /** The response exports a resource that no provider may export. */
  | 'ForeignApi'
  /** The response claims a resource that may not be claimed. */
  | 'Unclaimable'
  /** A rule has a wildcard. */
  | 'Wildcard'
  /** A rule is for a resource that is neither exported nor claimed. */
  | 'Beyond'
  /** A rule has a verb that no konnector needs. */
  | 'Verb'
  /** The options accept or reject a claim that the provider does not make. */
  | 'NotClaimed'
  /** The provider claims every Secret, and the options do not accept that by name. */
  | 'EverySecret'
  /** The response has no kubeconfig. */
  | 'NoKubeconfig';

/** The response to a bind must not be installed: the provider asks for too much, or the options do not fit it. */
export class RefusedError extends Error {
  /** The reason, which never changes. */
  readonly reason: RefusalReason;

  /** @internal */
  constructor(reason: RefusalReason, message: string) {
    super(message);
    this.name = 'RefusedError';
    this.reason = reason;
  }
}
