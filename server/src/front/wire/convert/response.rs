//! The response to a bind: all that the consumer needs to make its own manifests.

use bindery_api::{consumer_rules, names};
use bindery_proto::v1alpha2 as proto;
use bytes::Bytes;
use secrecy::ExposeSecret as _;

use crate::front::wire::convert::{boundschema, claims::claims, enums, meta};
use crate::{credentials::Minted, template::ExportPlan};

/// The message of a credential.
pub(crate) fn kubeconfig(minted: &Minted) -> proto::Kubeconfig {
    proto::Kubeconfig {
        kubeconfig: Bytes::from(minted.kubeconfig.expose_secret().to_owned()),
        contract_uid: minted.contract_uid.clone(),
        credential_id: minted.credential_id.clone(),
        expires_in: Some(meta::duration(minted.expires_in)),
        renew_after: Some(meta::duration(minted.renew_after)),
        expire_time: Some(meta::timestamp(minted.expire_time)),
    }
}

/// What the consumer installs after a template was bound under a name, or would install if it were.
pub(crate) fn response(
    name: &str,
    contract: &str,
    plan: &ExportPlan,
    bound_schemas: Vec<proto::BoundSchemaRef>,
    kubeconfig: Option<proto::Kubeconfig>,
) -> proto::BindingResourceResponse {
    proto::BindingResourceResponse {
        provider_namespace: contract.to_owned(),
        binding_name: name.to_owned(),
        kubeconfig,
        requests: vec![request(name, plan)],
        bound_schemas,
        consumer_rules: consumer_rules(plan),
    }
}

/// References to the schemas of a plan, before they exist.
pub(crate) fn planned_schemas(plan: &ExportPlan) -> Vec<proto::BoundSchemaRef> {
    let resources = plan.export.resources.iter().zip(&plan.schemas);
    resources
        .map(|(resource, schema)| boundschema::planned(names::bound_schema(&resource.group_resource), schema))
        .collect()
}

fn request(name: &str, plan: &ExportPlan) -> proto::ExportRequest {
    proto::ExportRequest {
        name: name.to_owned(),
        resources: meta::resources(&plan.export.resources),
        permission_claims: claims(&plan.export.permission_claims),
        namespaces: meta::names(&plan.namespaces),
        schema_update_policy: enums::schema_update_policy(plan.schema_update_policy),
    }
}

fn consumer_rules(plan: &ExportPlan) -> Vec<proto::ConsumerRule> {
    let claims = plan.export.permission_claims.iter();
    let rules = consumer_rules::consumer_rules(plan.resources(), claims.map(|claim| &claim.group_resource));
    rules
        .into_iter()
        .map(|rule| proto::ConsumerRule {
            api_groups: rule.api_groups.unwrap_or_default(),
            resources: rule.resources.unwrap_or_default(),
            verbs: rule.verbs,
            resource_names: rule.resource_names.unwrap_or_default(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{GroupResource, PermissionClaim};

    use super::*;
    use crate::{
        settings::tests::settings,
        template::{
            assess,
            tests::{cowboys, offered},
        },
    };

    #[test]
    fn a_konnector_is_given_rights_on_what_is_exported_and_claimed() {
        let mut plan = assess(&cowboys(), &offered(), &settings()).unwrap();
        plan.export.permission_claims = vec![PermissionClaim {
            group_resource: GroupResource::new("", "secrets"),
            ..PermissionClaim::default()
        }];
        let rules = consumer_rules(&plan);
        let resources: Vec<_> = rules.iter().flat_map(|rule| &rule.resources).collect();
        assert_eq!(resources, ["cowboys", "cowboys/status", "secrets"]);
        assert_eq!(rules[2].verbs, consumer_rules::OBJECT_VERBS);
        assert_eq!(request("west", &plan).permission_claims.len(), 1);
    }
}
