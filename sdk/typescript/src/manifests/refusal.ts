// Why an answer is refused.

/** Why an answer is refused, as a word that never changes. */
export type RefusalReason =
  /** The name of the binding or of the bundle is no DNS label. */
  | 'Name'
  /** The answer is for another binding than the one that was asked for. */
  | 'OtherBinding'
  /** The answer names no contract namespace. */
  | 'NoContract'
  /** The answer exports no resource. */
  | 'Empty'
  /** The answer exports a resource that no provider may export. */
  | 'ForeignApi'
  /** The answer claims a resource that may not be claimed. */
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
  /** The answer has no kubeconfig. */
  | 'NoKubeconfig';

/** An answer is not to be installed: the provider asks for too much, or the options do not fit it. */
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
