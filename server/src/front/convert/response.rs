//! What a consumer installs: data, from which it makes manifests of its own.

use bindery_api::names;
use bindery_proto::v1alpha2 as proto;
use bytes::Bytes;
use secrecy::ExposeSecret as _;

use super::{boundschema, claims::claims, enums, meta};
use crate::{credentials::Minted, template::ExportPlan};

/// A credential, as its holder gets it.
pub fn kubeconfig(minted: &Minted) -> proto::Kubeconfig {
    proto::Kubeconfig {
        kubeconfig: Bytes::from(minted.kubeconfig.expose_secret().to_owned()),
        contract_uid: minted.contract_uid.clone(),
        credential_id: minted.credential_id.clone(),
        expires_in: Some(meta::duration(minted.expires_in)),
        renew_after: Some(meta::duration(minted.renew_after)),
        expire_time: Some(meta::timestamp(minted.expire_time)),
    }
}

/// What comes of binding a template under a name, or would come of it.
pub fn response(
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
pub fn planned_schemas(plan: &ExportPlan) -> Vec<proto::BoundSchemaRef> {
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

/// The rights that a konnector needs for the export on its own cluster: its resources with their status. Nothing of what is
/// claimed, for no konnector reads or writes that, and a right that nobody uses is a danger and no more.
fn consumer_rules(plan: &ExportPlan) -> Vec<proto::ConsumerRule> {
    const RESOURCE_VERBS: [&str; 7] = ["get", "list", "watch", "create", "update", "patch", "delete"];
    const STATUS_VERBS: [&str; 3] = ["get", "update", "patch"];
    let rule = |group: &str, resource: String, verbs: &[&str]| proto::ConsumerRule {
        api_groups: vec![group.to_owned()],
        resources: vec![resource],
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        resource_names: Vec::new(),
    };
    let mut rules = Vec::new();
    for resource in plan.resources() {
        rules.push(rule(&resource.group, resource.resource.clone(), &RESOURCE_VERBS));
        rules.push(rule(
            &resource.group,
            format!("{}/status", resource.resource),
            &STATUS_VERBS,
        ));
    }
    rules
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
    fn a_konnector_is_given_rights_on_what_it_syncs_and_no_more() {
        let mut plan = assess(&cowboys(), &offered(), &settings()).unwrap();
        plan.export.permission_claims = vec![PermissionClaim {
            group_resource: GroupResource::new("", "secrets"),
            ..PermissionClaim::default()
        }];
        let rules = consumer_rules(&plan);
        let resources: Vec<_> = rules.iter().flat_map(|rule| &rule.resources).collect();
        assert_eq!(resources, ["cowboys", "cowboys/status"]);
        assert_eq!(request("west", &plan).permission_claims.len(), 1);
    }
}
