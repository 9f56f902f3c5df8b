// Which protocol the next call uses.

/** gRPC is tried again this long after a call had to use gRPC-Web, in milliseconds: the way to the server may have changed. */
const GRPC_AGAIN_MS = 5 * 60_000;

/** How to send a call: `grpcOrWeb` is by gRPC, and by gRPC-Web if HTTP/2 does not reach the server. */
export type SendPlan = 'grpc' | 'web' | 'grpcOrWeb';

/** What a client knows of the way to its server. Times are those of `performance.now()`. */
export class ProtocolChoice {
  readonly #setting: 'auto' | 'grpc' | 'grpc-web';
  readonly #againMs: number;
  /** Until when calls are sent by gRPC-Web without trying gRPC; undefined if HTTP/2 is not known to be missing. */
  #webUntil: number | undefined;

  constructor(setting: 'auto' | 'grpc' | 'grpc-web', againMs = GRPC_AGAIN_MS) {
    this.#setting = setting;
    this.#againMs = againMs;
  }

  /** The protocol that is used first. */
  get current(): 'grpc' | 'grpc-web' {
    if (this.#setting !== 'auto') return this.#setting;
    return this.#webUntil === undefined ? 'grpc' : 'grpc-web';
  }

  /** Whether a call may be sent by the other protocol. */
  get isFree(): boolean {
    return this.#setting === 'auto';
  }

  /** Decides how to send a call. When it is time to try gRPC again, one call tries it, and the others go on by gRPC-Web. */
  plan(now: number): SendPlan {
    if (this.#setting === 'grpc') return 'grpc';
    if (this.#setting === 'grpc-web') return 'web';
    if (this.#webUntil === undefined) return 'grpcOrWeb';
    if (now < this.#webUntil) return 'web';
    this.#webUntil = now + this.#againMs;
    return 'grpcOrWeb';
  }

  /** Notes that a call by gRPC reached the server. */
  grpcWorked(): void {
    this.#webUntil = undefined;
  }

  /** Notes that a call by gRPC-Web reached the server where gRPC did not. */
  webWorked(now: number): void {
    this.#webUntil = now + this.#againMs;
  }

  /**
   * Notes that a call by gRPC-Web did not reach the server, so that the next one tries gRPC: what stands before the server may have been
   * replaced.
   */
  webFailed(): void {
    this.#webUntil = undefined;
  }
}
