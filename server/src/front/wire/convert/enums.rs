//! Conversion of enums, by the table of the proto crate.

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2 as proto;

/// Declares conversions from the value of a CRD to the number of the message. A test checks that both have the same values.
macro_rules! to_proto {
    ($($name:ident: $from:ty => $to:ty;)+) => {$(
        /// The value of the message for that of the CRD.
        pub(crate) fn $name(value: $from) -> i32 {
            <$to>::from_crd_str(value.as_str()).unwrap_or(<$to>::Unspecified).into()
        }
    )+};
}

to_proto! {
    isolation: api::Isolation => proto::Isolation;
    scope: api::Scope => proto::Scope;
    informer_scope: api::InformerScope => proto::Scope;
    schema_update_policy: api::SchemaUpdatePolicy => proto::SchemaUpdatePolicy;
    conflict_policy: api::ConflictPolicy => proto::ConflictPolicy;
    phase: api::Phase => proto::Phase;
    compatibility: api::Compatibility => proto::Compatibility;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<T: Copy>(
        values: &[T],
        name: impl Fn(T) -> &'static str,
        to: impl Fn(T) -> i32,
        back: impl Fn(i32) -> Option<&'static str>,
    ) {
        for value in values {
            let number = to(*value);
            assert_ne!(number, 0, "{}", name(*value));
            assert_eq!(back(number), Some(name(*value)));
        }
        // The message has no value that the CRD lacks.
        let known = i32::try_from(values.len()).expect("a few");
        assert_eq!(back(known + 1), None);
    }

    #[test]
    fn every_value_has_its_like_on_the_other_side() {
        use api::{ConflictPolicy, InformerScope, Isolation, Phase, SchemaUpdatePolicy, Scope};
        let isolations = [Isolation::Prefixed, Isolation::Namespaced, Isolation::None];
        check(&isolations, Isolation::as_str, isolation, |number| {
            proto::Isolation::try_from(number).ok()?.as_crd_str()
        });
        let scopes = [Scope::Cluster, Scope::Namespaced];
        check(&scopes, Scope::as_str, scope, |number| {
            proto::Scope::try_from(number).ok()?.as_crd_str()
        });
        let scopes = [InformerScope::Cluster, InformerScope::Namespaced];
        check(&scopes, InformerScope::as_str, informer_scope, |number| {
            proto::Scope::try_from(number).ok()?.as_crd_str()
        });
        let policies = [SchemaUpdatePolicy::Never, SchemaUpdatePolicy::Always];
        check(&policies, SchemaUpdatePolicy::as_str, schema_update_policy, |number| {
            proto::SchemaUpdatePolicy::try_from(number).ok()?.as_crd_str()
        });
        let policies = [ConflictPolicy::FirstWins, ConflictPolicy::LastWins];
        check(&policies, ConflictPolicy::as_str, conflict_policy, |number| {
            proto::ConflictPolicy::try_from(number).ok()?.as_crd_str()
        });
        let phases = [Phase::Pending, Phase::Failed, Phase::Succeeded];
        check(&phases, Phase::as_str, phase, |number| {
            proto::Phase::try_from(number).ok()?.as_crd_str()
        });
        let others = [api::Compatibility::KubeBind];
        check(&others, api::Compatibility::as_str, compatibility, |number| {
            proto::Compatibility::try_from(number).ok()?.as_crd_str()
        });
    }
}
