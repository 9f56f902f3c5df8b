// Hides the one field that holds a secret from logs of messages.

import { inspect } from 'node:util';

import type { Message } from '@bufbuild/protobuf';
import { isMessage } from '@bufbuild/protobuf';

import { CreateBindableResourcesRequestResponseSchema } from './gen/kubebind/v1alpha2/binding_pb.js';
import { RenewKubeconfigResponseSchema } from './gen/kubebind/v1alpha2/credential_pb.js';
import type { Kubeconfig } from './gen/kubebind/v1alpha2/types_pb.js';
import { shown } from './hidden.js';

/** Makes the kubeconfig of a response show its content neither in `console.log` and `util.inspect`, nor in `JSON.stringify`. */
export function redact(response: Message): void {
  if (isMessage(response, CreateBindableResourcesRequestResponseSchema)) hide(response.response?.kubeconfig);
  else if (isMessage(response, RenewKubeconfigResponseSchema)) hide(response.kubeconfig);
}

function hide(kubeconfig: Kubeconfig | undefined): void {
  if (kubeconfig === undefined) return;
  const redacted = () => ({
    kubeconfig: shown(kubeconfig.kubeconfig),
    contractUid: kubeconfig.contractUid,
    credentialId: kubeconfig.credentialId,
  });
  Object.defineProperties(kubeconfig, {
    // What ignores the functions below, such as `console.dir`, shows no property that is not enumerable.
    kubeconfig: { value: kubeconfig.kubeconfig, enumerable: false, configurable: true, writable: true },
    toJSON: { value: redacted, enumerable: false, configurable: true },
    [inspect.custom]: { value: () => `Kubeconfig ${inspect(redacted())}`, enumerable: false, configurable: true },
  });
}
