// The messages, enums and services of the API, as they are generated from its .proto files.

export * from './gen/kubebind/v1alpha2/binding_pb.js';
export * from './gen/kubebind/v1alpha2/catalog_pb.js';
export * from './gen/kubebind/v1alpha2/contract_pb.js';
export * from './gen/kubebind/v1alpha2/credential_pb.js';
export * from './gen/kubebind/v1alpha2/errors_pb.js';
export * from './gen/kubebind/v1alpha2/export_pb.js';
export * from './gen/kubebind/v1alpha2/provider_pb.js';
export * from './gen/kubebind/v1alpha2/types_pb.js';
