// Errors of settings, found before any call is made.

/** Why settings are not valid, as a word that never changes. */
export type ConfigReason =
  | 'AddressInvalid'
  | 'PlaintextRefused'
  | 'CaInvalid'
  | 'ClientCertificateInvalid'
  | 'UserAgentInvalid'
  | 'SettingInvalid';

/** The settings of a client are not valid. No call was made. */
export class ConfigError extends Error {
  /** The reason, which never changes. */
  readonly reason: ConfigReason;

  /** @internal */
  constructor(reason: ConfigReason, message: string) {
    super(message);
    this.name = 'ConfigError';
    this.reason = reason;
  }
}
