// Calls the client's own method for a method of the API.

import { create, toJson, type DescMessage, type JsonValue, type Message, type MessageShape } from '@bufbuild/protobuf';

import type { CallOptions, Client, Pages } from '../../src/index.js';
import * as api from '../../src/v1alpha2.js';
import { wholeKubeconfig, wholeResponse } from './actions.js';
import { shown } from './json.js';

/** Takes the arguments from a request, and returns the result as proto JSON. */
export async function callTyped(
  client: Client,
  name: string,
  request: Message,
  options: CallOptions,
  texts: string[],
): Promise<JsonValue> {
  /** The request by its schema. */
  const by = <D extends DescMessage>(_schema: D) => request as MessageShape<D>;
  const all = async <D extends DescMessage>(schema: D, pages: Pages<MessageShape<D>>) =>
    (await pages.all()).map((item) => toJson(schema, item));
  switch (name) {
    case 'GetProvider':
      return toJson(api.ProviderSchema, await client.getProvider(options));
    case 'GetCaller':
      return toJson(api.CallerSchema, await client.getCaller(options));
    case 'ListTemplates':
      return all(api.TemplateSchema$, client.listTemplates(by(api.ListTemplatesRequestSchema), options));
    case 'GetTemplate': {
      const { template, schemas } = await client.getTemplate(by(api.GetTemplateRequestSchema).name, options);
      return {
        template: toJson(api.TemplateSchema$, template),
        ...(schemas.length > 0 && { schemas: schemas.map((schema) => toJson(api.TemplateSchemaSchema, schema)) }),
      };
    }
    case 'ListCollections':
      return all(api.CollectionSchema, client.listCollections(by(api.ListCollectionsRequestSchema), options));
    case 'GetCollection':
      return toJson(api.CollectionSchema, await client.getCollection(by(api.GetCollectionRequestSchema).name, options));
    case 'CreateBindableResourcesRequest': {
      const asked = by(api.CreateBindableResourcesRequestRequestSchema);
      const { request: created, bound } = await client.createBindableResourcesRequest(asked, options);
      texts.push(...shown(bound));
      return {
        bindableResourcesRequest: toJson(api.BindableResourcesRequestSchema, created),
        ...(bound && { response: toJson(api.BindingResourceResponseSchema, wholeResponse(bound)) }),
      };
    }
    case 'GetBindableResourcesRequest': {
      const { name: wanted, clusterIdentity } = by(api.GetBindableResourcesRequestRequestSchema);
      return toJson(api.BindableResourcesRequestSchema, await client.getBindableResourcesRequest(wanted, clusterIdentity, options));
    }
    case 'ListBindableResourcesRequests': {
      const filter = by(api.ListBindableResourcesRequestsRequestSchema);
      return all(api.BindableResourcesRequestSchema, client.listBindableResourcesRequests(filter, options));
    }
    case 'DeleteBindableResourcesRequest':
      await client.deleteBindableResourcesRequest(by(api.DeleteBindableResourcesRequestRequestSchema), options);
      return {};
    case 'ListExports':
      return all(api.ExportSchema, client.listExports(by(api.ListExportsRequestSchema), options));
    case 'GetExport': {
      const { contract, name: wanted } = by(api.GetExportRequestSchema);
      return toJson(api.ExportSchema, await client.getExport(contract, wanted, options));
    }
    case 'GetBoundSchema': {
      const { contract, name: wanted, knownHash } = by(api.GetBoundSchemaRequestSchema);
      const schema = await client.getBoundSchema(contract, wanted, knownHash, options);
      return schema === undefined ? { unchanged: true } : toJson(api.BoundSchemaSchema, schema);
    }
    case 'DeleteExport':
      return toJson(api.DeleteExportResponseSchema, await client.deleteExport(by(api.DeleteExportRequestSchema), options));
    case 'RenewKubeconfig': {
      const renewed = await client.renewKubeconfig(by(api.RenewKubeconfigRequestSchema).contract, options);
      texts.push(...shown(renewed), ...shown(renewed.response), ...shown(renewed.kubeconfig));
      const kubeconfig = wholeKubeconfig(renewed.response.kubeconfig, renewed.kubeconfig);
      return toJson(api.RenewKubeconfigResponseSchema, create(api.RenewKubeconfigResponseSchema, { contract: renewed.contract, kubeconfig }));
    }
    case 'RevokeCredentials': {
      const { contract, reason } = by(api.RevokeCredentialsRequestSchema);
      return toJson(api.RevokeCredentialsResponseSchema, await client.revokeCredentials(contract, reason, options));
    }
    case 'ListContracts':
      return all(api.ContractSchema, client.listContracts(by(api.ListContractsRequestSchema), options));
    case 'GetContract':
      return toJson(api.ContractSchema, await client.getContract(by(api.GetContractRequestSchema).contract, options));
    case 'ShareContract':
      return toJson(api.ContractSchema, await client.shareContract(by(api.ShareContractRequestSchema), options));
    case 'RevokeContract':
      return toJson(api.RevokeContractResponseSchema, await client.revokeContract(by(api.RevokeContractRequestSchema), options));
    case 'UnbindContract': {
      const left = await client.unbindContract(by(api.UnbindContractRequestSchema), options);
      return left.map((item) => toJson(api.UnboundExportSchema, item));
    }
    default:
      throw new Error(`the client has no method of its own for ${name}`);
  }
}
