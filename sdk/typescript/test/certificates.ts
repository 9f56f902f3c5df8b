// Certificates for tests, made with the command line of OpenSSL.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A certificate and its private key, both PEM. */
export interface Certificate {
  readonly cert: string;
  readonly key: string;
}

/** A CA in a folder of its own. */
export class Authority {
  readonly #folder = mkdtempSync(join(tmpdir(), 'bindery-sdk-'));
  #count = 0;

  constructor() {
    process.once('exit', () => rmSync(this.#folder, { recursive: true, force: true }));
    this.#run('req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2',
      '-subj', '/CN=tests', '-keyout', 'ca.key', '-out', 'ca.pem');
  }

  /** The certificate of the CA. */
  get pem(): string {
    return this.#read('ca.pem');
  }

  /** Signs a certificate for names such as `DNS:bind.example.com` or `IP:127.0.0.1`; one that has expired on request. */
  sign(names: string, { expired = false } = {}): Certificate {
    this.#count += 1;
    const name = `leaf-${this.#count}`;
    writeFileSync(join(this.#folder, `${name}.ext`), `subjectAltName=${names}\n`);
    this.#run('req', '-new', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-subj', `/CN=${name}`,
      '-keyout', `${name}.key`, '-out', `${name}.csr`);
    this.#run('x509', '-req', '-in', `${name}.csr`, '-CA', 'ca.pem', '-CAkey', 'ca.key', '-CAcreateserial',
      '-days', expired ? '-1' : '1', '-extfile', `${name}.ext`, '-out', `${name}.pem`);
    return { cert: this.#read(`${name}.pem`), key: this.#read(`${name}.key`) };
  }

  #run(...args: string[]): void {
    execFileSync('openssl', args, { cwd: this.#folder, stdio: 'pipe' });
  }

  #read(name: string): string {
    return readFileSync(join(this.#folder, name), 'utf8');
  }
}
