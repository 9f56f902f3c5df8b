// The client: all methods of the API, typed.

import { inspect } from 'node:util';

import { clone, create } from '@bufbuild/protobuf';
import type { DescMessage, DescMethodServerStreaming, MessageInitShape, MessageShape } from '@bufbuild/protobuf';

import {
  Bound,
  bindAndWait,
  bindRequest,
  createRequest,
  missing,
  type BindOptions,
  type BindRequest,
  type ClusterIdentityInput,
  type WaitOptions,
} from './bind.js';
import { Caller, type CallOptions, type UnaryMethod } from './call.js';
import {
  BindingService,
  type BindableResourcesRequest,
  type CreateBindableResourcesRequestResponse,
  type DeleteBindableResourcesRequestRequestSchema,
  type ListBindableResourcesRequestsRequestSchema,
  type WatchBindableResourcesRequestsRequestSchema,
} from './gen/kubebind/v1alpha2/binding_pb.js';
import {
  CatalogService,
  type Collection,
  type ListCollectionsRequestSchema,
  type ListTemplatesRequestSchema,
  type Template,
  type TemplateSchema,
} from './gen/kubebind/v1alpha2/catalog_pb.js';
import {
  ContractService,
  type Contract,
  type ListContractsRequestSchema,
  type RevokeContractRequestSchema,
  type RevokeContractResponse,
  type ShareContractRequestSchema,
  type UnbindContractRequestSchema,
  type UnboundExport,
  type WatchContractsRequestSchema,
} from './gen/kubebind/v1alpha2/contract_pb.js';
import { CredentialService, type RevokeCredentialsResponse } from './gen/kubebind/v1alpha2/credential_pb.js';
import {
  ExportService,
  type BoundSchema,
  type DeleteExportRequestSchema,
  type DeleteExportResponse,
  type Export,
  type ListExportsRequestSchema,
  type WatchExportsRequestSchema,
} from './gen/kubebind/v1alpha2/export_pb.js';
import { ProviderService, type Caller as CallerIdentity, type Provider } from './gen/kubebind/v1alpha2/provider_pb.js';
import type { Kubeconfig } from './gen/kubebind/v1alpha2/types_pb.js';
import { Pages, type Page } from './pages.js';
import { check, type ClientOptions } from './settings.js';
import { toTokenSource, type TokenInput } from './tokens/source.js';
import type { WatchMessage } from './watch/events.js';
import { Watch, type WatchOptions } from './watch/watch.js';

/** A template with the APIs that it installs. */
export interface TemplateDetails {
  /** The template. */
  readonly template: Template;
  /** The APIs that it installs on a consumer. */
  readonly schemas: readonly TemplateSchema[];
}

/** A renewed credential. */
export interface Renewed {
  /** The contract namespace that the credential is for. */
  readonly contract: string;
  /** The new kubeconfig. */
  readonly kubeconfig: Kubeconfig;
}

/** A client of one backend. It connects with its first call; all calls and watches share the connection. */
export class Client {
  readonly #caller: Caller;

  /**
   * Makes a client for the backend at `https://host:port`, or below a path prefix of a proxy.
   *
   * @throws ConfigError if the settings cannot work.
   */
  constructor(address: string, options?: ClientOptions);
  /** @internal */
  constructor(caller: Caller);
  constructor(address: string | Caller, options: ClientOptions = {}) {
    this.#caller = typeof address === 'string' ? new Caller(check(address, options)) : address;
  }

  /**
   * Returns a client with other tokens on the same connection, for services that call in the name of their users. Closing one of the
   * clients closes them all.
   */
  withToken(token: TokenInput): Client {
    return new Client(this.#caller.withTokens(toTokenSource(token)));
  }

  /** The address of the backend in its one spelling. */
  get address(): string {
    return this.#caller.address;
  }

  /** The audience that tokens must have. It follows from the address alone, never from a response. */
  get audience(): string {
    return this.#caller.address;
  }

  /** The protocol that the next call uses: `grpc`, or `grpc-web` after a fallback. */
  get protocol(): 'grpc' | 'grpc-web' {
    return this.#caller.protocol;
  }

  /** Closes the connection. Calls and watches in progress fail with an error of kind `cancelled`, and so do later ones. */
  close(): void {
    this.#caller.close();
  }

  /** Makes a call of any method without a stream, with token, request id, deadline and retries. */
  call<I extends DescMessage, O extends DescMessage>(
    method: UnaryMethod<I, O>,
    request: MessageInitShape<I>,
    options?: CallOptions,
  ): Promise<MessageShape<O>> {
    return this.#caller.unary(method, request, options);
  }

  // Provider and catalog

  /** Returns the provider and how to log in. The call needs no token. */
  async getProvider(options?: CallOptions): Promise<Provider> {
    const { provider } = await this.call(ProviderService.method.getProvider, {}, options);
    return provider ?? this.#missing('provider');
  }

  /** Returns who the caller is to the provider: its user, its groups, and how long its token is valid. */
  async getCaller(options?: CallOptions): Promise<CallerIdentity> {
    const { caller } = await this.call(ProviderService.method.getCaller, {}, options);
    return caller ?? this.#missing('caller');
  }

  /** Lists the templates that the caller may bind. */
  listTemplates(request: MessageInitShape<typeof ListTemplatesRequestSchema> = {}, options?: CallOptions): Pages<Template> {
    return this.#pages(request.pageToken, async (pageToken) => {
      const page = await this.call(CatalogService.method.listTemplates, { ...request, pageToken }, options);
      return { items: page.templates, nextPageToken: page.nextPageToken };
    });
  }

  /** Returns one template with the APIs that it installs. */
  async getTemplate(name: string, options?: CallOptions): Promise<TemplateDetails> {
    const { template, schemas } = await this.call(CatalogService.method.getTemplate, { name }, options);
    return { template: template ?? this.#missing('template'), schemas };
  }

  /** Lists the collections that hold a template which the caller may bind. */
  listCollections(
    request: MessageInitShape<typeof ListCollectionsRequestSchema> = {},
    options?: CallOptions,
  ): Pages<Collection> {
    return this.#pages(request.pageToken, async (pageToken) => {
      const page = await this.call(CatalogService.method.listCollections, { ...request, pageToken }, options);
      return { items: page.collections, nextPageToken: page.nextPageToken };
    });
  }

  /** Returns one collection. */
  async getCollection(name: string, options?: CallOptions): Promise<Collection> {
    const { collection } = await this.call(CatalogService.method.getCollection, { name }, options);
    return collection ?? this.#missing('collection');
  }

  // Binding

  /**
   * Binds a template to a consumer cluster, and waits for the result.
   *
   * @param cluster - Identity of the cluster, preferably the UID of its namespace kube-system.
   */
  bind(template: string, cluster: ClusterIdentityInput, options: BindOptions = {}): Promise<Bound> {
    return bindAndWait(this.#caller, bindRequest(template, cluster, options), options);
  }

  /** Binds by a whole request, and waits for the result. */
  bindByRequest(request: BindRequest, options: WaitOptions = {}): Promise<Bound> {
    return bindAndWait(this.#caller, request, options);
  }

  /**
   * Binds a template with one call that may take as long as `wait` says. Phase PENDING is returned as it is: the same call again goes
   * on waiting. Phase FAILED is an error of kind `requestFailed`.
   */
  createBindableResourcesRequest(
    request: BindRequest,
    options: CallOptions = {},
  ): Promise<CreateBindableResourcesRequestResponse> {
    return createRequest(this.#caller, request, options);
  }

  /** Returns one of the caller's requests. */
  async getBindableResourcesRequest(
    name: string,
    clusterIdentity: string,
    options?: CallOptions,
  ): Promise<BindableResourcesRequest> {
    const method = BindingService.method.getBindableResourcesRequest;
    const { bindableResourcesRequest } = await this.call(method, { name, clusterIdentity }, options);
    return bindableResourcesRequest ?? this.#missing('request');
  }

  /** Lists the caller's requests. */
  listBindableResourcesRequests(
    request: MessageInitShape<typeof ListBindableResourcesRequestsRequestSchema> = {},
    options?: CallOptions,
  ): Pages<BindableResourcesRequest> {
    return this.#pages(request.pageToken, async (pageToken) => {
      const method = BindingService.method.listBindableResourcesRequests;
      const page = await this.call(method, { ...request, pageToken }, options);
      return { items: page.bindableResourcesRequests, nextPageToken: page.nextPageToken };
    });
  }

  /** Watches the caller's requests across disconnects. */
  watchBindableResourcesRequests(
    request: MessageInitShape<typeof WatchBindableResourcesRequestsRequestSchema> = {},
    options?: WatchOptions,
  ): Watch<BindableResourcesRequest> {
    return this.#watch(BindingService.method.watchBindableResourcesRequests, request, options);
  }

  /** Removes the record of a request. The export stays bound. */
  async deleteBindableResourcesRequest(
    request: MessageInitShape<typeof DeleteBindableResourcesRequestRequestSchema>,
    options?: CallOptions,
  ): Promise<void> {
    await this.call(BindingService.method.deleteBindableResourcesRequest, request, options);
  }

  // Exports

  /** Lists the exports of one contract, or of all of the caller's. */
  listExports(request: MessageInitShape<typeof ListExportsRequestSchema> = {}, options?: CallOptions): Pages<Export> {
    return this.#pages(request.pageToken, async (pageToken) => {
      const page = await this.call(ExportService.method.listExports, { ...request, pageToken }, options);
      return { items: page.exports, nextPageToken: page.nextPageToken };
    });
  }

  /** Returns one export. `contract` may be empty if the caller has only one. */
  async getExport(contract: string, name: string, options?: CallOptions): Promise<Export> {
    const answer = await this.call(ExportService.method.getExport, { contract, name }, options);
    return answer.export ?? this.#missing('export');
  }

  /** Watches exports across disconnects. */
  watchExports(request: MessageInitShape<typeof WatchExportsRequestSchema> = {}, options?: WatchOptions): Watch<Export> {
    return this.#watch(ExportService.method.watchExports, request, options);
  }

  /**
   * Returns one schema; undefined if it still has the hash `knownHash`.
   *
   * @param contract - The contract namespace; it may be empty if the caller has only one.
   */
  async getBoundSchema(
    contract: string,
    name: string,
    knownHash = '',
    options?: CallOptions,
  ): Promise<BoundSchema | undefined> {
    const method = ExportService.method.getBoundSchema;
    const { boundSchema, unchanged } = await this.call(method, { contract, name, knownHash }, options);
    if (boundSchema === undefined && unchanged && knownHash !== '') return undefined;
    return boundSchema ?? this.#missing('bound schema');
  }

  /** Unbinds an export, and returns the number of leftovers. The call may take as long as `wait` says. */
  deleteExport(
    request: MessageInitShape<typeof DeleteExportRequestSchema>,
    options?: CallOptions,
  ): Promise<DeleteExportResponse> {
    return this.call(ExportService.method.deleteExport, request, options);
  }

  // Credentials

  /** Returns a new kubeconfig for a contract, which may be empty if the caller has only one. The old one stays valid until it expires. */
  async renewKubeconfig(contract = '', options?: CallOptions): Promise<Renewed> {
    const answer = await this.call(CredentialService.method.renewKubeconfig, { contract }, options);
    const kubeconfig = answer.kubeconfig ?? this.#missing('kubeconfig');
    return { contract: answer.contract, kubeconfig };
  }

  /** Revokes all credentials of a contract, and stops their renewal until an owner binds again. */
  revokeCredentials(contract: string, reason = '', options?: CallOptions): Promise<RevokeCredentialsResponse> {
    return this.call(CredentialService.method.revokeCredentials, { contract, reason }, options);
  }

  // Contracts

  /** Lists the contracts that the caller may see. */
  listContracts(request: MessageInitShape<typeof ListContractsRequestSchema> = {}, options?: CallOptions): Pages<Contract> {
    return this.#pages(request.pageToken, async (pageToken) => {
      const page = await this.call(ContractService.method.listContracts, { ...request, pageToken }, options);
      return { items: page.contracts, nextPageToken: page.nextPageToken };
    });
  }

  /** Returns one contract, by the name of its namespace. */
  async getContract(contract: string, options?: CallOptions): Promise<Contract> {
    const answer = await this.call(ContractService.method.getContract, { contract }, options);
    return answer.contract ?? this.#missing('contract');
  }

  /** Watches the contracts that the caller may see across disconnects. */
  watchContracts(
    request: MessageInitShape<typeof WatchContractsRequestSchema> = {},
    options?: WatchOptions,
  ): Watch<Contract> {
    return this.#watch(ContractService.method.watchContracts, request, options);
  }

  /** Changes the owner groups of a contract, and returns the contract as it is then. */
  async shareContract(request: MessageInitShape<typeof ShareContractRequestSchema>, options?: CallOptions): Promise<Contract> {
    const answer = await this.call(ContractService.method.shareContract, request, options);
    return answer.contract ?? this.#missing('contract');
  }

  /** Revokes all credentials of a contract, and stops their renewal until an owner binds again. */
  revokeContract(
    request: MessageInitShape<typeof RevokeContractRequestSchema>,
    options?: CallOptions,
  ): Promise<RevokeContractResponse> {
    return this.call(ContractService.method.revokeContract, request, options);
  }

  /** Unbinds exports of a contract, and returns those that are still there. The call may take as long as `wait` says. */
  async unbindContract(
    request: MessageInitShape<typeof UnbindContractRequestSchema>,
    options?: CallOptions,
  ): Promise<UnboundExport[]> {
    const { exports } = await this.call(ContractService.method.unbindContract, request, options);
    return exports;
  }

  toJSON(): { address: string } {
    return { address: this.address };
  }

  /** @internal */
  [inspect.custom](): string {
    return `Client ${inspect(this.toJSON())}`;
  }

  #pages<T>(first: string | undefined, fetch: (pageToken: string) => Promise<Page<T>>): Pages<T> {
    return new Pages(this.address, first ?? '', fetch);
  }

  #watch<I extends DescMessage, O extends DescMessage, T>(
    method: DescMethodServerStreaming<I, O>,
    init: MessageInitShape<I>,
    options: WatchOptions = {},
  ): Watch<T> {
    type Request = MessageShape<I> & { resumeToken: string };
    type Messages = AsyncIterable<MessageShape<O> & WatchMessage<T>>;
    const request = create(method.input, init) as Request;
    return new Watch<T>(
      this.#caller,
      request.resumeToken,
      async (token, tokens, signal) => {
        const message = clone(method.input, request) as Request;
        message.resumeToken = token;
        const { messages, requestId } = await this.#caller.open(method, message, tokens, signal);
        return { messages: messages as Messages, requestId };
      },
      options,
    );
  }

  #missing(what: string): never {
    throw missing(this.#caller, what);
  }
}
