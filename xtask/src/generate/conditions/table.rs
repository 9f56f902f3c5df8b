//! The conditions of each kind with their reasons, in words.

/// A reason, what it says, and what mends it.
pub(super) type Reason = [&'static str; 3];

/// A kind with its conditions.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) conditions: &'static [Condition],
}

/// A condition with the reasons for which it does not hold.
#[derive(Debug)]
pub(super) struct Condition {
    pub(super) name: &'static str,
    pub(super) says: &'static str,
    pub(super) reasons: &'static [Reason],
}

const READY: Condition = Condition {
    name: "Ready",
    says: "Repeats the worst of the other conditions.",
    reasons: &[],
};

/// Whether what the provider sends can be taken, of bindings and bundles.
const PROVIDER_DATA: Condition = Condition {
    name: "ProviderDataAccepted",
    says: "Whether all that the provider sends is taken. It is absent while nothing was refused.",
    reasons: &[
        [
            "ProviderLimitExceeded",
            "The provider sends more than the konnector holds for one contract. Nothing is synced or deleted meanwhile.",
            "Have the provider send less, or raise the flag that the message names.",
        ],
        [
            "InvalidNames",
            "Objects of the provider have names that Kubernetes does not allow. They are skipped.",
            "Tell the provider's admin, who renames them.",
        ],
    ],
};

/// The reasons of SecretValid of bindings and bundles.
const SECRET_REASONS: &[Reason] = &[
    [
        "CredentialRenewalLocked",
        "The server renews the credential no more: a token was used again after a newer one, or the credentials are too old.",
        "Its owner binds again.",
    ],
    [
        "KubeconfigSecretNotFound",
        "The Secret does not exist.",
        "Create it, or bind again.",
    ],
    [
        "KubeconfigKeyNotFound",
        "The Secret lacks the key. On a binding: `KubeconfigSecretInvalid`.",
        "Put the kubeconfig under the key that the message names.",
    ],
    [
        "KubeconfigSecretInvalid",
        "The Secret cannot be used: it holds no kubeconfig, or an incomplete one.",
        "Put in the whole kubeconfig of the response.",
    ],
    [
        "KubeconfigUnsafe",
        "The kubeconfig would run a program, read files, use a proxy, impersonate, or trust what cannot be verified. On a binding: `KubeconfigSecretInvalid`.",
        "Put in a kubeconfig with a server (`https`), a CA, a token and a namespace, and nothing else.",
    ],
    [
        "KubeconfigNamespaceMissing",
        "The context of the kubeconfig names no valid namespace. On a binding: `KubeconfigSecretInvalid`.",
        "Set the contract namespace in the context.",
    ],
    [
        "KubeconfigSecretElsewhere",
        "The Secret is not in the konnector's namespace. On a binding: `KubeconfigSecretInvalid`.",
        "Put the Secret there, and name it in a new binding or bundle.",
    ],
    [
        "ContractServedElsewhere",
        "Another konnector of this cluster serves the contract. On a binding: `KubeconfigSecretInvalid`.",
        "Use that konnector, or bind with another `--cluster-identity`.",
    ],
    [
        "CredentialExpired",
        "The provider does not take the token: its time is over, or it was revoked.",
        "`kubectl bind renew NAME`, or put a new kubeconfig into the Secret.",
    ],
    [
        "CredentialDenied",
        "The provider knows the token and refuses the contract.",
        "Ask the provider's admin, or bind again.",
    ],
    [
        "CredentialRenewalFailing",
        "The token works, and it cannot be renewed.",
        "See the message. The token works until it expires.",
    ],
    [
        "ContractUnverified",
        "The konnector may not read what tells this contract from another one. Nothing is synced.",
        "The provider's admin adds the rule that the message prints.",
    ],
    [
        "ProviderChanged",
        "The Secret leads to another contract than the one that was bound.",
        "Put the former Secret back, or consent with the annotation that the message names.",
    ],
    [
        "ProviderUnreachable",
        "The status is Unknown: the provider has not answered yet.",
        "See the network, and the provider's API server.",
    ],
];

/// The reasons of Held of bindings and bundles.
const HELD_REASONS: &[Reason] = &[
    [
        "RestoredOrCloned",
        "This cluster is a clone, or was restored from a backup.",
        "`kubectl bind accept` on the cluster that goes on.",
    ],
    [
        "ProviderWentBack",
        "The provider was restored from a backup.",
        "`kubectl bind accept`.",
    ],
    [
        "RecordDeleted",
        "The ClusterBinding of the contract was deleted.",
        "`kubectl bind accept`, unless another cluster was bound since.",
    ],
    [
        "SecondInstall",
        "This konnector has no record of the contract, and another one holds it.",
        "Remove one of the two, or `kubectl bind accept` if this is the only one.",
    ],
    [
        "OtherHolder",
        "Another cluster was accepted as the one that goes on.",
        "`kubectl bind accept` only if this cluster is the one to go on.",
    ],
    [
        "Contested",
        "Two konnectors held the contract at the same time. Both wait.",
        "`kubectl bind accept` on one of them.",
    ],
    [
        "OlderKonnector",
        "A konnector of an older version has sent a heartbeat.",
        "Stop that konnector, then `kubectl bind accept`.",
    ],
    [
        "Unfenced",
        "The status is Unknown: the provider keeps no record of the holder. Sync goes on.",
        "The provider's admin adds the right on `clusterbindings/status`.",
    ],
];

/// The reasons of ProviderAccessComplete of bindings and bundles.
const ACCESS_REASONS: &[Reason] = &[
    [
        "RightsMissing",
        "Rights in the contract namespace are missing. What needs them is left undone.",
        "The provider's admin adds the rules that the message prints.",
    ],
    [
        "ContractUnverified",
        "Nothing tells whether this is still the same contract. Nothing is deleted or unbound.",
        "Add the rules that the message prints, or consent to the UID that it names.",
    ],
];

/// Every kind whose conditions Bindery writes.
pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "APIServiceBinding",
        about: "The konnector writes these conditions on the consumer.",
        conditions: &[
            READY,
            Condition {
                name: "SecretValid",
                says: "Whether the Secret in `spec.kubeconfigSecretRef` gives access to the provider.",
                reasons: SECRET_REASONS,
            },
            Condition {
                name: "Connected",
                says: "Whether the export exists and its APIs are installed.",
                reasons: &[
                    ["Connecting", "The provider has not answered yet.", "Wait."],
                    [
                        "ProviderUnreachable",
                        "The provider does not answer.",
                        "See the network, and the provider's API server.",
                    ],
                    [
                        "ContractNotFound",
                        "The contract namespace is gone.",
                        "Ask the provider, or bind again.",
                    ],
                    [
                        "ContractUnverified",
                        "The export is not shown, and the contract cannot be verified. Nothing is unbound.",
                        "See `ProviderAccessComplete`.",
                    ],
                    [
                        "APIServiceExportNotFound",
                        "There is no export of this name.",
                        "Bind again.",
                    ],
                    [
                        "APIServiceExportInvalid",
                        "The export cannot be read.",
                        "Ask the provider's admin.",
                    ],
                    [
                        "ExportRemoved",
                        "The provider removed the export. Objects stay and are no longer synced.",
                        "Bind again, or unbind.",
                    ],
                    [
                        "ExportNotSelected",
                        "The selector of the bundle does not match the export.",
                        "Change the selector, or consent to the end with the annotation that the message names.",
                    ],
                    [
                        "ForeignCustomResourceDefinition",
                        "The CRD on this cluster belongs to somebody else.",
                        "Remove the CRD, or offer it to the binding: see [Adopting what exists](../guides/adopting-what-exists.md#5-a-crd-that-is-on-the-consumer-already).",
                    ],
                    [
                        "SchemasDisagree",
                        "The CRD that is offered to the binding and the provider's schema do not agree.",
                        "Make them agree as the message says.",
                    ],
                    [
                        "ProtectedGroup",
                        "The API is of a group of Kubernetes or of kube-bind.",
                        "Ask the provider for an API of a group of its own.",
                    ],
                    [
                        "BoundSchemaFetchFailed",
                        "The schema does not exist on the provider.",
                        "Ask the provider's admin, or bind again.",
                    ],
                    [
                        "BoundSchemaInvalid",
                        "The schema cannot be installed.",
                        "Ask the provider's admin.",
                    ],
                    [
                        "CustomResourceDefinitionCreateFailed",
                        "The API server of this cluster refuses to create the CRD.",
                        "See the message.",
                    ],
                    [
                        "CustomResourceDefinitionUpdateFailed",
                        "The API server of this cluster refuses to change the CRD.",
                        "See the message.",
                    ],
                    [
                        "RightsMissing",
                        "The konnector may not read the schema on the provider.",
                        "See `ProviderAccessComplete`.",
                    ],
                ],
            },
            Condition {
                name: "Heartbeating",
                says: "Whether the provider receives heartbeats.",
                reasons: &[
                    [
                        "FirstHeartbeatPending",
                        "The provider has not accepted a heartbeat yet.",
                        "Wait.",
                    ],
                    [
                        "ClusterBindingUpdateFailed",
                        "Heartbeats cannot be written.",
                        "See the message: a right, or the network.",
                    ],
                    [
                        "ConsumerClusterMismatch",
                        "The contract serves another cluster. Nothing is written.",
                        "Bind with credentials for this cluster, or take the contract over with the annotation that the message names.",
                    ],
                    [
                        "NotHeld",
                        "No heartbeat is sent while another konnector may hold the contract.",
                        "See `Held`.",
                    ],
                ],
            },
            Condition {
                name: "SchemaInSync",
                says: "Whether the CRDs match the provider's schemas. Reasons of `Connected` about a CRD and reasons of the export occur here too.",
                reasons: &[
                    ["Starting", "The contract is not recorded in the status yet.", "Wait."],
                    ["SchemaUnknown", "The schema is not known yet.", "Wait."],
                    [
                        "CustomResourceDefinitionMissing",
                        "The CRD is being created or taken over.",
                        "Wait.",
                    ],
                    [
                        "CustomResourceDefinitionNotEstablished",
                        "The API server does not serve the CRD yet.",
                        "See the conditions of the CRD.",
                    ],
                    [
                        "NoCommonVersion",
                        "The CRD serves no version that the provider serves.",
                        "Serve a version that both have.",
                    ],
                    [
                        "IncompatibleSchema",
                        "A change of the schema would break objects. The installed schema stays.",
                        "The provider takes the change back; or unbind and bind again.",
                    ],
                ],
            },
            Condition {
                name: "InformersSynced",
                says: "Whether both clusters are watched.",
                reasons: &[
                    ["InformersSyncing", "The first lists are not complete.", "Wait."],
                    [
                        "InformerSyncTimeout",
                        "A list or a watch fails.",
                        "See the message; it prints the rule where a right on this cluster is missing.",
                    ],
                    [
                        "Forbidden",
                        "A right was taken away. What was listed stays, and changes are not seen.",
                        "Add the rule that the message prints.",
                    ],
                    [
                        "Unreachable",
                        "A watch that was open cannot be opened again.",
                        "See the network.",
                    ],
                ],
            },
            Condition {
                name: "ObjectsInSync",
                says: "Whether all objects of the bound resources are in sync.",
                reasons: &[[
                    "ObjectsFailing",
                    "Some objects are not in sync.",
                    "Their [events](#events-on-synced-objects) say why; `kubectl bind why KIND/NAME` says it of one.",
                ]],
            },
            Condition {
                name: "OrphanedObjects",
                says: "True while copies have lost their source and nobody was seen to delete it. It does not make a binding less ready.",
                reasons: &[[
                    "SourcesMissing",
                    "Copies are kept although their objects are missing.",
                    "[`kubectl bind orphans`](kubectl-bind.md#orphans).",
                ]],
            },
            Condition {
                name: "PermissionClaimsInSync",
                says: "Whether claimed objects, such as Secrets, are in sync.",
                reasons: &[
                    [
                        "ContractUnverified",
                        "Claimed objects are not synced while the contract cannot be verified.",
                        "See `ProviderAccessComplete`.",
                    ],
                    [
                        "AcceptedClaimsUnreadable",
                        "The record of accepted claims is no list of claims.",
                        "Accept again as the message says.",
                    ],
                    [
                        "ClaimRefused",
                        "The konnector refuses a claim, even if the user accepts it.",
                        "Ask the provider for an export without the claim.",
                    ],
                    [
                        "ClaimNotAccepted",
                        "The provider claims more than was accepted.",
                        "`kubectl bind claims`, then accept or reject.",
                    ],
                    [
                        "RightsMissing",
                        "A right is missing on one of the clusters.",
                        "Add the rule that the message prints.",
                    ],
                    ["ClaimFailing", "A claim cannot be served.", "See the message."],
                    [
                        "Withdrawing",
                        "Copies of what is no longer accepted, or lies outside of `spec.claimNamespaces`, are being deleted.",
                        "Wait.",
                    ],
                    ["ClaimsSyncing", "The first lists are not complete.", "Wait."],
                ],
            },
            PROVIDER_DATA,
            Condition {
                name: "ProviderAccessComplete",
                says: "False while rights in the contract namespace are missing; otherwise absent. See [Rights on the provider](provider-rights.md).",
                reasons: ACCESS_REASONS,
            },
            Condition {
                name: "Held",
                says: "False while another konnector may hold the contract; otherwise absent. Nothing is written on either cluster.",
                reasons: HELD_REASONS,
            },
            Condition {
                name: "Active",
                says: "False while the user pauses the binding.",
                reasons: &[[
                    "Paused",
                    "The binding has the annotation `kube-bind.io/paused`.",
                    "Remove the annotation.",
                ]],
            },
            Condition {
                name: "Draining",
                says: "True while the binding is being deleted.",
                reasons: &[
                    ["Unbinding", "Objects, CRDs and the export are being removed.", "Wait."],
                    [
                        "Stuck",
                        "The user must act.",
                        "Do what the message says; `kubectl bind unbind --force` where the provider is gone.",
                    ],
                    [
                        "Paused",
                        "The binding is paused.",
                        "Remove the annotation `kube-bind.io/paused`.",
                    ],
                ],
            },
        ],
    },
    Kind {
        name: "APIServiceBindingBundle",
        about: "The konnector writes these conditions on the consumer. [Conditions of bundles](bundle-conditions.md) explains them at length.",
        conditions: &[
            READY,
            Condition {
                name: "SecretValid",
                says: "As of an APIServiceBinding.",
                reasons: SECRET_REASONS,
            },
            Condition {
                name: "ProviderReachable",
                says: "Whether the provider's API server answers.",
                reasons: &[
                    [
                        "ProviderUnreachable",
                        "The provider does not answer.",
                        "See the network, and the provider's API server.",
                    ],
                    [
                        "ProviderUnauthorized",
                        "The provider does not know the token.",
                        "Carry a new Secret.",
                    ],
                    [
                        "ProviderForbidden",
                        "The provider refuses exports and contract namespace.",
                        "The provider's admin sees to the RoleBinding of the contract.",
                    ],
                    [
                        "ContractUnverified",
                        "Nothing tells whether this is still the same contract.",
                        "See `ProviderAccessComplete`.",
                    ],
                    [
                        "ContractNotFound",
                        "The contract namespace is gone.",
                        "Ask the provider.",
                    ],
                ],
            },
            PROVIDER_DATA,
            Condition {
                name: "ProviderAccessComplete",
                says: "As of an APIServiceBinding.",
                reasons: ACCESS_REASONS,
            },
            Condition {
                name: "Held",
                says: "As of an APIServiceBinding.",
                reasons: HELD_REASONS,
            },
            Condition {
                name: "Synced",
                says: "Whether the bindings are in line with the exports.",
                reasons: &[
                    [
                        "ProviderClientError",
                        "No usable kubeconfig reaches the provider.",
                        "See `SecretValid`.",
                    ],
                    [
                        "ListExportsFailed",
                        "The exports cannot be read.",
                        "See `ProviderReachable`.",
                    ],
                    [
                        "ListBindingsFailed",
                        "The bindings of this cluster cannot be watched.",
                        "See the API server of this cluster, and the konnector's role.",
                    ],
                    [
                        "ConsumerClusterMismatch",
                        "The contract serves another cluster.",
                        "Use a contract of this cluster's own, or consent to the move.",
                    ],
                    [
                        "InvalidSpec",
                        "A field of the spec cannot be used.",
                        "Correct the field that the message names.",
                    ],
                    [
                        "SyncErrors",
                        "An export is in conflict, or a write failed.",
                        "The message has one sentence for each.",
                    ],
                    ["Connecting", "The first list of exports is not there yet.", "Wait."],
                    [
                        "Waiting",
                        "A binding ends, or the provider has not confirmed a removal.",
                        "Wait.",
                    ],
                ],
            },
        ],
    },
    Kind {
        name: "APIServiceExportTemplate",
        about: "The server writes the condition on the provider. An APIServiceExportRequest and an export have these reasons too, in `ExportsReady`, `PermissionClaim` and `TemplateInSync`.",
        conditions: &[Condition {
            name: "Ready",
            says: "Whether the template can be bound.",
            reasons: &[
                [
                    "SchemaNotFound",
                    "A CRD is missing, or lacks label `kube-bind.io/exported=true`.",
                    "Create or label the CRD.",
                ],
                [
                    "SchemaNotEstablished",
                    "The API server does not serve a CRD.",
                    "See the conditions of the CRD.",
                ],
                [
                    "CoreGroupNotExportable",
                    "The resource is of Kubernetes' core group.",
                    "Offer a custom resource.",
                ],
                [
                    "VersionNotServed",
                    "The CRD does not serve a version that the template names.",
                    "Name versions that it serves.",
                ],
                ["NoVersionServed", "The CRD serves no version.", "Serve one."],
                [
                    "InvalidSchema",
                    "The schema of the CRD cannot be offered.",
                    "See the message.",
                ],
                [
                    "ProtectedGroup",
                    "The resource is of a group of Kubernetes or of kube-bind.",
                    "Offer a resource of a group of your own.",
                ],
                [
                    "DuplicateResource",
                    "A resource is listed twice.",
                    "List it once, with all its versions.",
                ],
                [
                    "DifferentScopes",
                    "The resources have different scopes.",
                    "Make one template for each scope.",
                ],
                [
                    "ScopeMismatch",
                    "The scope of the template does not fit a resource, or what is bound already.",
                    "Do what the message says.",
                ],
                [
                    "ClusterScopedResource",
                    "Isolation Namespaced needs a CRD that is namespaced on the provider.",
                    "Choose another isolation, or offer a namespaced CRD.",
                ],
                [
                    "ScopeUnknown",
                    "The template that had the scope was deleted.",
                    "Restore the template, or delete the export.",
                ],
                [
                    "PlacementFixed",
                    "A field changed that would move the objects of an export.",
                    "Unbind first, or choose another name.",
                ],
                [
                    "InvalidConflictPolicy",
                    "`spec.conflictPolicy` has no effect here.",
                    "Remove it, or set scope Cluster and isolation None.",
                ],
                [
                    "InvalidClusterScopedNamespace",
                    "`spec.clusterScopedNamespace` has no effect here.",
                    "Remove it, or set scope Cluster and isolation Namespaced.",
                ],
                [
                    "InvalidRetention",
                    "`spec.retention` cannot be used.",
                    "Do what the message says.",
                ],
                [
                    "InvalidPermissionClaim",
                    "A claim cannot be served.",
                    "Do what the message says.",
                ],
                [
                    "DuplicatePermissionClaim",
                    "A resource is claimed twice.",
                    "Put both selectors into one claim.",
                ],
                [
                    "InvalidNamespace",
                    "A namespace has an invalid name.",
                    "Use lower-case letters, digits and dashes.",
                ],
                [
                    "AdmissionPolicyMissing",
                    "The admission policy that limits consumers is not in force.",
                    "Apply `deploy/server/policy.yaml`, or upgrade the release.",
                ],
                [
                    "AdmissionPolicyUnproved",
                    "The server cannot prove that the admission policy is in force.",
                    "See the message.",
                ],
                [
                    "ServerLacksRights",
                    "The server lacks rights that it would hand out.",
                    "Apply the ClusterRole that the message prints.",
                ],
            ],
        }],
    },
    Kind {
        name: "Collection",
        about: "The server writes the condition on the provider.",
        conditions: &[Condition {
            name: "Ready",
            says: "Whether the templates of the collection exist.",
            reasons: &[[
                "TemplateNotFound",
                "A template does not exist.",
                "Create it, or take it out of the collection.",
            ]],
        }],
    },
    Kind {
        name: "BindableResourcesRequest",
        about: "The server writes the condition on the provider. A request in phase `Pending` goes on by itself once that is mended; one that `Failed` does not. The reasons of a template that is not ready occur here too.",
        conditions: &[Condition {
            name: "Ready",
            says: "Whether the request is fulfilled. True has the reason `ExportReady` or `SecretReady`.",
            reasons: &[
                ["ExportReady", "True: the export is ready.", ""],
                [
                    "SecretReady",
                    "True: the export is ready, and the Secret holds the response.",
                    "",
                ],
                [
                    "RenewalLocked",
                    "The contract's credentials are renewed no more.",
                    "Its owner binds again.",
                ],
                [
                    "ForbiddenNamespace",
                    "The request is in a namespace of consumers.",
                    "Create it in another namespace.",
                ],
                [
                    "InvalidName",
                    "The name is no DNS label.",
                    "Create the request under such a name.",
                ],
                [
                    "InvalidAuthor",
                    "`spec.author` must not bind.",
                    "Set it to the user that makes the request.",
                ],
                [
                    "InvalidClusterIdentity",
                    "`spec.clusterIdentity` cannot be used.",
                    "Do what the message says.",
                ],
                [
                    "InvalidTTL",
                    "`spec.ttlAfterFinished` is no duration.",
                    "Write one such as `24h`.",
                ],
                [
                    "InvalidSecretRef",
                    "`spec.kubeconfigSecretRef` cannot be used.",
                    "Do what the message says.",
                ],
                ["FeatureOff", "`spec.compatibility` is not served.", "Leave it out."],
                [
                    "TemplateNotFound",
                    "The template does not exist, or none is named.",
                    "Name one that exists.",
                ],
                [
                    "PolicyMissing",
                    "The admission policy on requests is not in force.",
                    "Apply `deploy/server/requests-policy.yaml`, or upgrade the release.",
                ],
                [
                    "PolicyUnproved",
                    "The server cannot prove that the admission policy on requests is in force.",
                    "See the message.",
                ],
                [
                    "MadeBeforePolicy",
                    "The request is older than the admission policy.",
                    "Delete it and create it again.",
                ],
                [
                    "ClusterIdentityTaken",
                    "The cluster identity belongs to somebody else.",
                    "Use the same author, or another identity.",
                ],
                [
                    "ClusterIdentityMismatch",
                    "The contract namespace is of another identity.",
                    "Ask the provider's admin.",
                ],
                [
                    "ClusterIdentityAmbiguous",
                    "Several contracts have the identity.",
                    "Ask the provider's admin.",
                ],
                [
                    "ForeignNamespace",
                    "A namespace of the contract's name is not the server's.",
                    "Delete it, or label it as the message says.",
                ],
                ["ContractTerminating", "The contract is being deleted.", "Wait."],
                [
                    "ContractNameOverlaps",
                    "The name of the contract would overlap with another one's.",
                    "Do what the message says.",
                ],
                ["ContractNotReady", "The server is setting up the contract.", "Wait."],
                [
                    "CredentialsRevoked",
                    "The credentials of the contract are revoked.",
                    "The owner binds again.",
                ],
                [
                    "ExportNameTaken",
                    "An export of this name was made from another template or request.",
                    "Choose another name, or unbind.",
                ],
                [
                    "ExportNotFound",
                    "The export was unbound.",
                    "Delete the request and create it again.",
                ],
                [
                    "ExportRequestFailed",
                    "The APIServiceExportRequest failed.",
                    "See its conditions.",
                ],
                [
                    "ForeignSecret",
                    "A Secret of that name is not the server's.",
                    "Delete it, or name another.",
                ],
                [
                    "SecretCreationFailed",
                    "The Secret cannot be written.",
                    "See the message; the server needs ClusterRole `bindery-server-responses` there.",
                ],
                [
                    "TooManyRequests",
                    "The contract has too many fulfilled requests.",
                    "Delete some of them.",
                ],
            ],
        }],
    },
    Kind {
        name: "APIServiceExportRequest",
        about: "The server writes these conditions in the contract namespace. Reasons of a template that is not ready occur in both.",
        conditions: &[
            Condition {
                name: "ExportsReady",
                says: "Whether the export, and all that it needs, exists.",
                reasons: &[
                    [
                        "ExportNameTaken",
                        "An export of this name belongs to another request.",
                        "Choose another name.",
                    ],
                    [
                        "TemplateNotGranted",
                        "No template that is granted to this contract offers exactly these resources, claims and namespaces.",
                        "Take them as the template has them.",
                    ],
                    [
                        "TemplateBindDenied",
                        "Who bound the template may not bind it any more.",
                        "Ask the provider's admin for the right, and bind again.",
                    ],
                ],
            },
            Condition {
                name: "PermissionClaim",
                says: "Whether the claims can be served. Its reasons are `InvalidPermissionClaim` and `DuplicatePermissionClaim`.",
                reasons: &[],
            },
        ],
    },
    Kind {
        name: "APIServiceExport",
        about: "Server and konnector write these conditions in the contract namespace.",
        conditions: &[
            Condition {
                name: "ProviderInSync",
                says: "Whether schemas and rights of the export exist.",
                reasons: &[
                    ["BoundSchemaMissing", "A schema cannot be made.", "See the message."],
                    [
                        "ForeignObject",
                        "An object is in the way that is not the server's.",
                        "Rename or delete that object.",
                    ],
                    [
                        "ServerLacksRights",
                        "The server lacks rights that it would hand out.",
                        "Apply the ClusterRole that the message prints.",
                    ],
                ],
            },
            Condition {
                name: "PolicyInForce",
                says: "Whether the admission policy on which rights of the export rely is in force. Its reason is `AdmissionPolicyMissing`.",
                reasons: &[],
            },
            Condition {
                name: "SchemaInSync",
                says: "Whether the schemas are those of the provider's CRDs.",
                reasons: &[
                    [
                        "SchemaChanged",
                        "The CRD changed, and `schemaUpdatePolicy: Never` keeps the schema.",
                        "Unbind and bind again to take the change.",
                    ],
                    [
                        "IncompatibleSchema",
                        "The change would break objects. The schema stays.",
                        "Take the change back, or unbind and bind again.",
                    ],
                ],
            },
            Condition {
                name: "TemplateInSync",
                says: "Whether the export is still what its template makes.",
                reasons: &[
                    ["TemplateNotFound", "The template is gone. The export stays.", ""],
                    [
                        "TemplateChanged",
                        "The template changed.",
                        "Bind again to take the change.",
                    ],
                    [
                        "PlacementChanged",
                        "A field changed that would move objects. They stay.",
                        "Unbind and bind again.",
                    ],
                ],
            },
            Condition {
                name: "Connected",
                says: "Whether the konnector could install the schemas.",
                reasons: &[[
                    "BoundSchemasNotValid",
                    "The consumer refuses a schema.",
                    "See the message.",
                ]],
            },
            Condition {
                name: "ConsumerInSync",
                says: "Repeats `SchemaInSync` of the binding.",
                reasons: &[],
            },
        ],
    },
    Kind {
        name: "APIServiceNamespace",
        about: "The server writes the condition in the contract namespace. A refusal shows on objects of the consumer as event `NoProviderNamespace`.",
        conditions: &[Condition {
            name: "Ready",
            says: "Whether the provider namespace and its rights exist.",
            reasons: &[
                [
                    "InvalidName",
                    "The name cannot be that of a namespace.",
                    "Delete the object.",
                ],
                [
                    "TooManyNamespaces",
                    "The contract has as many namespaces as `--max-namespaces-per-contract` allows.",
                    "Give others back, or raise the limit.",
                ],
                [
                    "ForeignNamespace",
                    "An object on the provider is in the way.",
                    "The provider's admin renames or deletes it.",
                ],
                [
                    "NamespaceOfOtherContract",
                    "The provider namespace is not of this contract.",
                    "Choose another name.",
                ],
                [
                    "NamespaceTerminating",
                    "The provider namespace is being deleted.",
                    "Wait.",
                ],
                [
                    "SharedNamespaceNotLabelled",
                    "No admin agreed that consumers share this namespace.",
                    "The admin labels it `kube-bind.io/shared=true`.",
                ],
                [
                    "SharedNamespaceReserved",
                    "The namespace must not be shared.",
                    "Use another namespace.",
                ],
                [
                    "SharedNamespaceTerminating",
                    "The shared namespace is being deleted.",
                    "Wait.",
                ],
                [
                    "ForeignSharedNamespace",
                    "An object in the shared namespace is in the way.",
                    "The provider's admin renames or deletes it.",
                ],
                [
                    "Draining",
                    "Objects of the contract are left in it.",
                    "Wait, or remove what the message names.",
                ],
                [
                    "HeldByFinalizers",
                    "Finalizers keep objects in it.",
                    "See to the controllers that the message names.",
                ],
            ],
        }],
    },
    Kind {
        name: "ClusterBinding",
        about: "The server writes `Healthy`, and the konnector the others, in the contract namespace.",
        conditions: &[
            Condition {
                name: "Healthy",
                says: "Whether the konnector reports in time.",
                reasons: &[
                    [
                        "FirstHeartbeatPending",
                        "No konnector has connected yet.",
                        "Bind on the consumer, and see the konnector's log.",
                    ],
                    [
                        "HeartbeatIntervalMissing",
                        "The konnector does not say how often it reports.",
                        "Upgrade the konnector.",
                    ],
                    [
                        "HeartbeatTimeout",
                        "The last heartbeat is too old.",
                        "See whether the konnector runs and reaches this cluster.",
                    ],
                    [
                        "HeartbeatTimeDrift",
                        "The konnector's clock is ahead.",
                        "Set both clocks by NTP.",
                    ],
                ],
            },
            Condition {
                name: "CredentialRenewable",
                says: "False for reason `RenewalLocked` while the server renews the contract's credentials no more.",
                reasons: &[],
            },
            Condition {
                name: "Held",
                says: "Ends with the record of the holder.",
                reasons: &[[
                    "Contested",
                    "Two konnectors held the contract at the same time.",
                    "`kubectl bind accept` on one of the clusters.",
                ]],
            },
            Condition {
                name: "SecretValid",
                says: "True once the konnector has sent a heartbeat.",
                reasons: &[],
            },
            Condition {
                name: "ValidVersion",
                says: "True once the konnector has sent a heartbeat.",
                reasons: &[],
            },
        ],
    },
];

/// The reasons of events on objects, and on bindings and bundles beside those of their conditions.
pub(super) const EVENTS: &[Reason] = &[
    [
        "Conflict",
        "The provider has an object of this name that is not this object's copy, or says something else.",
        "Do what the message says: make the object anew under another name, make them equal, or `kubectl bind orphans --relink`.",
    ],
    [
        "NameRetained",
        "The provider retains the copy of a deleted object of this name.",
        "`kubectl bind restore`, or `kubectl bind discard`.",
    ],
    [
        "Orphaned",
        "The object is missing, and its deletion was not seen. The copy is kept.",
        "`kubectl bind orphans`.",
    ],
    [
        "OlderSource",
        "The object is in an older state than its copy.",
        "`kubectl bind accept`.",
    ],
    [
        "ProviderOverrides",
        "The provider changed fields that this object sets. They were written back once.",
        "Settle with the provider who sets the field.",
    ],
    [
        "PlaceUnknown",
        "The copy is in another provider namespace than the default, and the konnector may not list them.",
        "See `ProviderAccessComplete`.",
    ],
    [
        "Paused",
        "The deletion waits: the object is paused.",
        "Remove the annotation `kube-bind.io/paused`.",
    ],
    [
        "CopyOverridden",
        "A copy of a claimed object was changed. It was written back once.",
        "Change the source instead.",
    ],
    [
        "NamespaceNotClaimed",
        "A claimed object of the provider does not come down: its namespace has no bound object, or `spec.claimNamespaces` does not list it.",
        "Add the namespace to `spec.claimNamespaces`.",
    ],
    [
        "SecretTypeNotClaimed",
        "A claimed Secret of the provider does not come down: its type may have a meaning for a tool of the consumer.",
        "Ask the provider for a Secret of type `Opaque`, or list the type in `spec.claimSecretTypes`.",
    ],
    [
        "ContractUnverified",
        "The deletion waits until the contract can be verified.",
        "See `ProviderAccessComplete`.",
    ],
    [
        "NoProviderNamespace",
        "The namespace of the object gets none on the provider.",
        "See the reason in the message, which is one of an [APIServiceNamespace](#apiservicenamespace).",
    ],
    [
        "Forbidden",
        "A cluster refuses the request.",
        "Add the right that the message names; an admission policy may refuse too.",
    ],
    [
        "TooLarge",
        "The object is larger than the API server takes.",
        "Make it smaller.",
    ],
    [
        "Invalid",
        "A cluster refuses the object as invalid.",
        "Correct the field that the message names.",
    ],
    ["Unreachable", "A cluster does not answer.", "See the network."],
    [
        "SyncFailed",
        "A request failed otherwise. It is tried again.",
        "See the message.",
    ],
    [
        "Unstable",
        "The object changes faster than it can be written. It is tried again.",
        "Find who writes it in a loop.",
    ],
    [
        "ClaimedApiMissing",
        "A claimed resource is not served on both clusters.",
        "Install its CRD on both.",
    ],
    [
        "DeletionsHeldBack",
        "Copies stay, because orphans may refer to them.",
        "`kubectl bind orphans`.",
    ],
    [
        "ReferencesUnknown",
        "References of bound objects cannot be followed yet.",
        "See the message.",
    ],
    ["Bound", "A bundle made a binding.", ""],
    ["Unbound", "A binding has ended.", ""],
    [
        "BindRefused",
        "On a request: the bind was refused.",
        "See its condition `Ready`.",
    ],
    [
        "ProviderKeepsExport",
        "The binding ended, and the provider keeps the export.",
        "The provider's admin ends it.",
    ],
    [
        "CopiesLeftOnProvider",
        "Copies of claimed objects stay on the provider.",
        "The provider's admin removes them.",
    ],
    ["OrphansEnding", "The order to end orphans is carried out.", ""],
    [
        "OrphanOrderRefused",
        "The orphans are others than those that were ordered to end.",
        "`kubectl bind orphans` again.",
    ],
    ["HolderAccepted", "This konnector goes on as the holder.", ""],
    [
        "HolderOrderRefused",
        "The provider records something else than what was accepted.",
        "`kubectl bind accept` again.",
    ],
    ["RetentionEnding", "The order to restore or discard is carried out.", ""],
    [
        "RetentionOrderRefused",
        "The order to restore or discard cannot be carried out.",
        "See the message.",
    ],
];
