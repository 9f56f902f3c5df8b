//! All checks, with what they look at. `docs/reference/check.md` has the same texts.

use serde::{Serialize, Serializer};

/// A group of checks: a section of the output and of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Consumer,
    Konnector,
    Bindings,
    Contracts,
    Backend,
    Provider,
}

impl Group {
    /// The heading of the section.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Consumer => "This cluster",
            Self::Konnector => "The konnector",
            Self::Bindings => "Bindings and bundles",
            Self::Contracts => "The provider's API server, with the credentials of the bindings",
            Self::Backend => "The backend",
            Self::Provider => "The provider's cluster",
        }
    }
}

/// Declares the checks: each with its id, its group, what it looks at, and what mends a failure.
macro_rules! checks {
    ($($check:ident $id:literal $group:ident looks $looks:literal mend $mend:literal)*) => {
        /// A check of `kubectl bind check`. Its id is in the output and never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Check {
            $(#[doc = $looks] $check,)*
        }

        impl Check {
            /// Every check, in the order of the output.
            #[cfg(test)]
            pub(crate) const ALL: &[Self] = &[$(Self::$check),*];

            /// The name of the check: its anchor in the reference. Scripts read it, so it does not change.
            pub(crate) const fn id(self) -> &'static str {
                match self { $(Self::$check => $id,)* }
            }

            pub(crate) const fn group(self) -> Group {
                match self { $(Self::$check => Group::$group,)* }
            }

            /// What the check looks at, for the reference.
            #[cfg(test)]
            pub(crate) const fn looks_at(self) -> &'static str {
                match self { $(Self::$check => $looks,)* }
            }

            /// What mends a failure, for the reference.
            #[cfg(test)]
            pub(crate) const fn mend(self) -> &'static str {
                match self { $(Self::$check => $mend,)* }
            }
        }
    };
}

checks! {
    ConsumerApi "consumer-api" Consumer
        looks "Checks whether this cluster's API server answers, over TLS with a certificate that the kubeconfig trusts."
        mend "Check `--kubeconfig` and `--context`, the network, and that the API server runs."
    ConsumerVersion "consumer-version" Consumer
        looks "Checks whether this cluster runs Kubernetes 1.30 or newer, the first version with ValidatingAdmissionPolicies."
        mend "Upgrade the cluster."
    ConsumerClock "consumer-clock" Consumer
        looks "Checks whether the clocks of this machine and of this cluster's API server agree, by the header `Date` of an answer. More than 10 s are a warning, more than 2 min a failure."
        mend "Set both clocks by NTP, such as with `timedatectl set-ntp true`."
    KonnectorDefinitions "konnector-definitions" Konnector
        looks "Checks whether this cluster serves APIServiceBindings and APIServiceBindingBundles."
        mend "Run `kubectl bind deploy`, or upgrade the release of Helm."
    KonnectorRights "konnector-rights" Konnector
        looks "Checks whether the konnector's ServiceAccount has every right that the shipped roles give, by SubjectAccessReviews. Rights on bound resources belong to the bindings, whose conditions report them."
        mend "Run `kubectl bind deploy` or upgrade the release of Helm, which restores the roles, or add the rules that are printed to ClusterRole `kube-bind-konnector`, or to Role `konnector` for rights in one namespace."
    KonnectorPolicy "konnector-policy" Konnector
        looks "Checks whether the ValidatingAdmissionPolicies that limit the konnector exist and are those of this release."
        mend "Delete the policy, if it differs, and run `kubectl bind deploy`, or upgrade the release of Helm. Both only add to what others put into it."
    KonnectorPolicyBinding "konnector-policy-binding" Konnector
        looks "Checks whether each of these policies is bound with action Deny, without which it does nothing."
        mend "Delete the binding, if it differs, and run `kubectl bind deploy`, or upgrade the release of Helm. Both only add to what others put into it."
    KonnectorPolicyInForce "konnector-policy-in-force" Konnector
        looks "Checks whether each of these policies denies a request, sent as a dry run in the konnector's name, that it has to deny. Skipped for a user who may not impersonate the konnector."
        mend "Wait a few seconds after a change of the policy; then run `kubectl bind deploy`, or upgrade the release of Helm."
    KonnectorDeployment "konnector-deployment" Konnector
        looks "Checks whether the last rollout of Deployment `konnector` is complete. Skipped where there is no such Deployment, or no replica of it is available."
        mend "See why the new Pod does not start: `kubectl get pods -n kube-bind`, and its log. To take the change back, `helm rollback` the release, or run `kubectl rollout undo deployment/konnector -n kube-bind`."
    KonnectorLease "konnector-lease" Konnector
        looks "Checks whether a konnector holds Lease `kube-bind` and renews it. A Lease that looks old is watched until it would expire, so that a wrong clock does not count as a missing leader."
        mend "See the log of the konnector, and start it again: `kubectl rollout restart deployment/konnector -n kube-bind`."
    KonnectorClock "konnector-clock" Konnector
        looks "Checks whether the clocks of the konnector and of this cluster's API server agree, by the times that the konnector writes into its Lease."
        mend "Set the clock of the konnector's node by NTP."
    KonnectorVersion "konnector-version" Konnector
        looks "Checks whether this command and the konnector are at most one minor version apart. The version is the one that the konnector reports to its providers, or else the tag of its image."
        mend "Run `kubectl bind deploy` of the newer release, or install the `kubectl-bind` of the konnector's release."
    CredentialSecret "credential-secret" Bindings
        looks "Checks whether the Secret of each binding and bundle exists and holds a kubeconfig that is safe to use."
        mend "Bind again, or put the provider's kubeconfig into the Secret."
    BindingReady "binding-ready" Bindings
        looks "Checks whether the konnector reports each binding as ready: condition `Ready`, with the message of what is wrong, since when."
        mend "Do what the message of the condition says; `kubectl bind status NAME` shows all conditions."
    BundleReady "bundle-ready" Bindings
        looks "Checks whether the konnector reports each bundle as ready: condition `Ready`, with the message of what is wrong, since when."
        mend "Do what the message of the condition says; see the conditions of bundles."
    ProviderApi "provider-api" Contracts
        looks "Checks whether the provider's API server answers this machine, at the address in the kubeconfigs of the bindings."
        mend "Check the address and the network to it, and tell the provider's admin."
    ProviderCertificate "provider-certificate" Contracts
        looks "Checks whether the certificate of the provider's API server is signed by the CA in the kubeconfig, names the host that is dialled, and is valid for at least 7 more days."
        mend "For another CA, get a new kubeconfig with `kubectl bind renew`. For an expired certificate or a wrong name, the provider's admin issues another certificate."
    ProviderClock "provider-clock" Contracts
        looks "Checks whether the clocks of this machine and of the provider's API server agree."
        mend "Set both clocks by NTP."
    Credential "credential" Contracts
        looks "Checks whether the provider accepts the newest token of each contract: one that is refused before its time is over was revoked, or the provider's keys changed."
        mend "Run `kubectl bind renew NAME` as the owner of the contract."
    CredentialRenewal "credential-renewal" Contracts
        looks "Checks whether the konnector can still renew each credential: the renewal token is accepted by the backend and does not expire within a day."
        mend "Run `kubectl bind renew NAME` as the owner of the contract."
    Heartbeat "heartbeat" Contracts
        looks "Checks whether the konnector reaches each provider: the time of its last heartbeat there, which is due at least every two intervals. Skipped if the konnector's clock is wrong."
        mend "See the log of the konnector, and whether its pod reaches the provider's API server."
    BackendReachable "backend-reachable" Backend
        looks "Checks whether the backend accepts connections from this machine."
        mend "Check the address, the network and that the server runs and its Service leads to it: `kubectl get pods,endpointslices -n kube-bind` on the provider."
    BackendCertificate "backend-certificate" Backend
        looks "Checks whether the backend's certificate is signed by the CA in the kubeconfig (or in `--certificate-authority`), names the host that is dialled, and is valid for at least 7 more days."
        mend "For another CA, get a new kubeconfig with `kubectl bind renew`. For an expired certificate or a wrong name, the provider's admin gives the server another certificate, which it reads again when its file changes."
    BackendAnswers "backend-answers" Backend
        looks "Checks whether the backend answers gRPC."
        mend "See the log of the server, and whether a proxy in front of it passes gRPC (HTTP/2) through."
    BackendVersion "backend-version" Backend
        looks "Checks whether this command and the konnector are each at most one minor version apart from the server."
        mend "Upgrade the older program. Server and konnector one minor version apart work together."
    ProviderAdminApi "provider-admin-api" Provider
        looks "Checks whether the provider's API server answers at the address of `--provider-context` or `--provider-kubeconfig`."
        mend "Check these flags, the network, and that the API server runs."
    ProviderVersion "provider-version" Provider
        looks "Checks whether the provider's cluster runs Kubernetes 1.30 or newer."
        mend "Upgrade the cluster."
    ProviderAdminClock "provider-admin-clock" Provider
        looks "Checks whether the clocks of this machine and of the provider's API server agree."
        mend "Set both clocks by NTP."
    ServerRights "server-rights" Provider
        looks "Checks whether the server's ServiceAccount has every right that the shipped roles give. Rights that offers need are reported by the templates."
        mend "Apply the manifests of `deploy/server` of the server's release again."
    ServerPolicy "server-policy" Provider
        looks "Checks whether the ValidatingAdmissionPolicies that limit consumers, those who request bindings, and the server's account, exist and are those of this release."
        mend "Apply `deploy/server/policy.yaml`, `deploy/server/requests-policy.yaml` and `deploy/server/account-policy.yaml`, or delete the policy, if it differs, and upgrade the release of Helm."
    ServerPolicyBinding "server-policy-binding" Provider
        looks "Checks whether each of these policies is bound with action Deny."
        mend "Apply `deploy/server/policy.yaml`, `deploy/server/requests-policy.yaml` and `deploy/server/account-policy.yaml`, or delete the binding, if it differs, and upgrade the release of Helm."
    ServerPolicyInForce "server-policy-in-force" Provider
        looks "Checks whether each of these policies denies its probe, an object named `policy.probe` that is created as a dry run."
        mend "Wait a few seconds after a change of the policy; then apply it again."
    ServerDeployment "server-deployment" Provider
        looks "Checks whether the last rollout of Deployment `bindery-server` is complete. Skipped where there is no such Deployment, or no replica of it is available."
        mend "See why the new Pod does not start: `kubectl get pods -n kube-bind`, and its log. To take the change back, `helm rollback` the release, or run `kubectl rollout undo deployment/bindery-server -n kube-bind`."
    ServerLease "server-lease" Provider
        looks "Checks whether a server holds Lease `bindery-server` and renews it. Without a leader, calls are answered and no controller works."
        mend "See the log of the server, and start it again."
    ServerClock "server-clock" Provider
        looks "Checks whether the clocks of the server and of its API server agree, by the times that the server writes into its Lease."
        mend "Set the clock of the server's node by NTP."
    ContractRevoked "contract-revoked" Provider
        looks "Checks whether the credentials of a contract of this consumer are revoked."
        mend "The owner of the contract runs `kubectl bind renew NAME` on the consumer."
    TemplateReady "template-ready" Provider
        looks "Checks whether each APIServiceExportTemplate can be bound."
        mend "Do what the message of its condition says."
    LoginToken "login-token" Provider
        looks "Checks whether the provider's API server accepts the ID token of your login at the backend. It must not: the backend gets such a token, and could act there as you with it. The backend is that of `--server` (or `KUBECTL_BIND_SERVER`), and the token is sent to the API server of `--provider-context` or `--provider-kubeconfig` and to no other: no address in the kubeconfig of a binding decides where it goes. Skipped without `--server`, without such a login, and where the API server's certificate is not verified."
        mend "Register a public client of Bindery's own with the issuer, configure the server with its id (`--oidc-client-id`, or `audiences` in the file of `--authentication-config`), and log in again. Or have the API server accept another client only."
}

impl Check {
    /// Where the reference explains the check.
    pub(crate) fn link(self) -> String {
        format!("docs/reference/check.md#{}", self.id())
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.id())
    }
}
