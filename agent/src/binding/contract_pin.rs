//! Which contract a binding is pinned to: its own, or, until it has one, that of its bundle.

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use jiff::Timestamp;

use crate::controller::consent::Consent;

/// The contract that a binding may be served by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContractPin {
    /// UID of the contract; `None` if any contract is accepted.
    pub(super) contract: Option<String>,
    /// Whether the user consents to another contract.
    pub(super) consent: bool,
    /// Whether the binding waits for its bundle to be pinned to a contract.
    pub(super) waits: bool,
}

impl ContractPin {
    /// The pin of a binding that was made by a bundle or by hand.
    pub(super) fn of(binding: &APIServiceBinding, bundle: Option<&APIServiceBindingBundle>, now: Timestamp) -> Self {
        let own = binding.contract_uid().map(str::to_owned);
        let consent = Consent::read(binding, annotations::ACCEPT_PROVIDER_CHANGE, now);
        let consent = consent.until().is_some();
        let Some(bundle) = bundle.filter(|_| own.is_none()) else {
            return Self {
                contract: own,
                consent,
                waits: false,
            };
        };
        // The Secret may have been replaced since the bundle made the binding.
        let contract = bundle.contract_uid().map(str::to_owned);
        let consent = consent
            || Consent::read(bundle, annotations::ACCEPT_PROVIDER_CHANGE, now)
                .until()
                .is_some();
        Self {
            waits: contract.is_none() && !consent && binding.metadata.deletion_timestamp.is_none(),
            contract,
            consent,
        }
    }
}

/// Whether a change of a bundle concerns its bindings.
pub(super) fn concerns_bindings(old: &APIServiceBindingBundle, new: &APIServiceBindingBundle) -> bool {
    let says = |bundle: &APIServiceBindingBundle| {
        let annotations = bundle.metadata.annotations.as_ref();
        let consent = annotations.and_then(|all| all.get(annotations::ACCEPT_PROVIDER_CHANGE));
        (consent.cloned(), bundle.contract_uid().map(str::to_owned))
    };
    old.spec != new.spec || says(old) != says(new)
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{
        APIServiceBindingBundleSpec, APIServiceBindingBundleStatus, APIServiceBindingSpec, APIServiceBindingStatus,
    };
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kube::ResourceExt as _;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn consent(object: &mut impl kube::Resource, until: Option<&str>) {
        if let Some(until) = until {
            let key = annotations::ACCEPT_PROVIDER_CHANGE.to_owned();
            object.annotations_mut().insert(key, until.to_owned());
        }
    }

    /// Contract and consent of one.
    type Said<'a> = (Option<&'a str>, Option<&'a str>);

    fn binding((contract, until): Said<'_>) -> APIServiceBinding {
        let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
        binding.status = Some(APIServiceBindingStatus {
            contract_uid: contract.map(str::to_owned),
            ..APIServiceBindingStatus::default()
        });
        consent(&mut binding, until);
        binding
    }

    fn bundle((contract, until): Said<'_>) -> APIServiceBindingBundle {
        let mut bundle = APIServiceBindingBundle::new("west", APIServiceBindingBundleSpec::default());
        bundle.status = Some(APIServiceBindingBundleStatus {
            contract_uid: contract.map(str::to_owned),
            ..APIServiceBindingBundleStatus::default()
        });
        consent(&mut bundle, until);
        bundle
    }

    #[track_caller]
    fn check(own: Said<'_>, of_bundle: Option<Said<'_>>, contract: Option<&str>, consent: bool, waits: bool) {
        let bundle = of_bundle.map(bundle);
        let pin = ContractPin::of(&binding(own), bundle.as_ref(), NOW);
        let contract = contract.map(str::to_owned);
        assert_eq!(
            pin,
            ContractPin {
                contract,
                consent,
                waits
            }
        );
    }

    #[test]
    fn a_binding_that_has_no_contract_yet_is_held_to_its_bundles() {
        let (valid, over) = (Some("1970-01-02T00:00:00Z"), Some("1969-01-02T00:00:00Z"));
        check((None, None), None, None, false, false);
        check((Some("a"), None), None, Some("a"), false, false);
        check((Some("a"), None), Some((Some("b"), valid)), Some("a"), false, false);
        check((None, None), Some((Some("b"), None)), Some("b"), false, false);
        check((None, None), Some((Some("b"), valid)), Some("b"), true, false);
        check((None, None), Some((Some("b"), over)), Some("b"), false, false);
        check((None, valid), Some((Some("b"), None)), Some("b"), true, false);
        check((None, None), Some((None, None)), None, false, true);
        check((None, None), Some((None, over)), None, false, true);
        check((None, None), Some((None, valid)), None, true, false);
        let mut going = binding((None, None));
        going.metadata.deletion_timestamp = Some(Time(NOW));
        assert!(!ContractPin::of(&going, Some(&bundle((None, None))), NOW).waits);
    }

    #[test]
    fn bindings_hear_what_their_bundle_is_held_to() {
        let check = |old, new, expect| assert_eq!(concerns_bindings(&bundle(old), &bundle(new)), expect);
        let until = Some("1970-01-02T00:00:00Z");
        check((None, None), (None, None), false);
        check((None, None), (Some("a"), None), true);
        check((Some("a"), None), (Some("a"), until), true);
        check((Some("a"), until), (Some("a"), until), false);
    }
}
