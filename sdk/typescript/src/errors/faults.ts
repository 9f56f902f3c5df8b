// Failures of the connection to the server, told apart by what the user has to do.

interface FaultInfo {
  /** The reason for conditions and metrics, which never changes. */
  readonly reason: string;
  /** Whether a retry cannot succeed until the configuration of client or server has changed. */
  readonly isPermanent: boolean;
  /** What is wrong, and what to do. */
  readonly advice: string;
}

const FAULTS = {
  refused: {
    reason: 'ConnectionRefused',
    isPermanent: false,
    advice: 'no program listens there; check host and port, and that the server runs',
  },
  nameUnknown: {
    reason: 'NameUnknown',
    isPermanent: false,
    advice: 'the name has no address; check its spelling and the DNS',
  },
  connectTimeout: {
    reason: 'ConnectTimeout',
    isPermanent: false,
    advice: 'no connection in time; check host and port, and firewalls and network policies on the way',
  },
  certificateUntrusted: {
    reason: 'CertificateUntrusted',
    isPermanent: true,
    advice: "its certificate is signed by a CA that is not trusted here; give that CA's certificate",
  },
  certificateName: {
    reason: 'CertificateNameMismatch',
    isPermanent: true,
    advice: "its certificate is for another name; dial that name, or give it as the server's name",
  },
  certificateExpired: {
    reason: 'CertificateExpired',
    isPermanent: true,
    advice: 'its certificate is not valid at this time; renew it, and check the clocks',
  },
  clientCertificate: {
    reason: 'ClientCertificateRefused',
    isPermanent: true,
    advice: 'it accepts only clients with a certificate that its CAs signed; present a valid one',
  },
  tls: { reason: 'TlsFailed', isPermanent: true, advice: 'TLS failed' },
  serverIsPlaintext: {
    reason: 'ServerIsPlaintext',
    isPermanent: true,
    advice: 'it speaks no TLS; check the port (plaintext is allowed on loopback alone, as http://)',
  },
  noHttp2: {
    reason: 'NoHttp2',
    isPermanent: true,
    advice: 'it speaks TLS but not HTTP/2; a proxy in front of it must pass gRPC or gRPC-Web through',
  },
  broken: { reason: 'ConnectionBroken', isPermanent: false, advice: 'the connection broke' },
  silent: {
    reason: 'StreamSilent',
    isPermanent: false,
    advice: 'its stream had no message, not even a heartbeat, for longer than a live server is silent',
  },
} as const satisfies Record<string, FaultInfo>;

/** Kind of a failed connection. */
export type TransportFault = keyof typeof FAULTS;

/** Returns the reason for conditions and metrics, which never changes. */
export function faultReason(fault: TransportFault): string {
  return FAULTS[fault].reason;
}

/** Whether a retry cannot succeed until the configuration of client or server has changed. */
export function isPermanent(fault: TransportFault): boolean {
  return FAULTS[fault].isPermanent;
}

/** Says what is wrong with the connection, and what to do. */
export function describeFault(fault: TransportFault, address: string): string {
  if (fault === 'broken' && address.startsWith('http://')) {
    return 'the connection broke; if the server speaks TLS, dial https://';
  }
  return FAULTS[fault].advice;
}
