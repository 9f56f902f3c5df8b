// Hides the one message that holds a secret from logs.

import { inspect } from 'node:util';

import type { Message } from '@bufbuild/protobuf';
import { isMessage } from '@bufbuild/protobuf';

import { CreateBindableResourcesRequestResponseSchema } from './gen/kubebind/v1alpha2/binding_pb.js';
import { RenewKubeconfigResponseSchema } from './gen/kubebind/v1alpha2/credential_pb.js';
import type { Kubeconfig } from './gen/kubebind/v1alpha2/types_pb.js';

/** Makes the kubeconfig of an answer show its content neither in `console.log` and `util.inspect`, nor in `JSON.stringify`. */
export function redact(answer: Message): void {
  if (isMessage(answer, CreateBindableResourcesRequestResponseSchema)) hide(answer.response?.kubeconfig);
  else if (isMessage(answer, RenewKubeconfigResponseSchema)) hide(answer.kubeconfig);
}

function hide(kubeconfig: Kubeconfig | undefined): void {
  if (kubeconfig === undefined) return;
  const shown = () => ({
    kubeconfig: `[${kubeconfig.kubeconfig.byteLength} bytes redacted]`,
    contractUid: kubeconfig.contractUid,
    credentialId: kubeconfig.credentialId,
  });
  Object.defineProperties(kubeconfig, {
    toJSON: { value: shown, enumerable: false, configurable: true },
    [inspect.custom]: { value: () => `Kubeconfig ${inspect(shown())}`, enumerable: false, configurable: true },
  });
}
