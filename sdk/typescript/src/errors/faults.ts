// Failures of the connection to the server, told apart by what the user has to do.

interface FaultInfo {
  /** The reason for conditions and metrics, which never changes. */
  readonly reason: string;
  /** Whether a retry cannot succeed until somebody has changed the configuration of client or server. */
  readonly needsMending: boolean;
  /** What is wrong, and what to do. */
  readonly mend: string;
}

const FAULTS = {
  refused: {
    reason: 'ConnectionRefused',
    needsMending: false,
    mend: 'nobody listens there; check host and port, and that the server runs',
  },
  nameUnknown: {
    reason: 'NameUnknown',
    needsMending: false,
    mend: 'the name has no address; check its spelling and the DNS',
  },
  connectTimeout: {
    reason: 'ConnectTimeout',
    needsMending: false,
    mend: 'no answer; check host and port, and firewalls and network policies on the way',
  },
  certificateUntrusted: {
    reason: 'CertificateUntrusted',
    needsMending: true,
    mend: "its certificate is signed by a CA that is not trusted here; give that CA's certificate",
  },
  certificateName: {
    reason: 'CertificateNameMismatch',
    needsMending: true,
    mend: "its certificate is for another name; dial that name, or give it as the server's name",
  },
  certificateExpired: {
    reason: 'CertificateExpired',
    needsMending: true,
    mend: 'its certificate is not valid at this time; renew it, and check the clocks',
  },
  clientCertificate: {
    reason: 'ClientCertificateRefused',
    needsMending: true,
    mend: 'it accepts only clients with a certificate that its CAs signed; present a valid one',
  },
  tls: { reason: 'TlsFailed', needsMending: true, mend: 'TLS failed' },
  serverIsPlaintext: {
    reason: 'ServerIsPlaintext',
    needsMending: true,
    mend: 'it speaks no TLS; check the port (plaintext is allowed on loopback alone, as http://)',
  },
  noHttp2: {
    reason: 'NoHttp2',
    needsMending: true,
    mend: 'it speaks TLS but not HTTP/2; a proxy in front of it must pass gRPC or gRPC-Web through',
  },
  broken: { reason: 'ConnectionBroken', needsMending: false, mend: 'the connection broke' },
  silent: { reason: 'StreamSilent', needsMending: false, mend: 'it has been silent for longer than a live stream is' },
} as const satisfies Record<string, FaultInfo>;

/** Kind of a failed connection. */
export type TransportFault = keyof typeof FAULTS;

/** Returns the reason for conditions and metrics, which never changes. */
export function faultReason(fault: TransportFault): string {
  return FAULTS[fault].reason;
}

/** Tells whether a retry cannot succeed until somebody has changed the configuration of client or server. */
export function needsMending(fault: TransportFault): boolean {
  return FAULTS[fault].needsMending;
}

/** Says what is wrong, and what to do. */
export function describeTransport(fault: TransportFault, address: string): string {
  if (fault === 'broken' && address.startsWith('http://')) {
    return 'the connection broke; if the server speaks TLS, dial https://';
  }
  return FAULTS[fault].mend;
}
