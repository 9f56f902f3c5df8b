//! Other ways to write than one object by its name.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};

use crate::world::{A, NOT_OWN, SHARED, case, dry_run, named, refused, sheriff, sheriffs};

#[test]
fn generated_names_count_as_what_they_become() -> Result<()> {
    case(async |world| {
        let api = sheriffs(&world.a);
        let generated = |prefix: &str| {
            let mut object = sheriff("", None);
            object.metadata.name = None;
            object.metadata.generate_name = Some(prefix.to_owned());
            object
        };
        let made = api.create(&PostParams::default(), &generated("kube-bind-a-")).await?;
        ensure!(made.name_any().starts_with("kube-bind-a-"), "{made:?}");
        for prefix in ["wyatt-", "kube-bind-a", "kube-bind-ab-"] {
            refused(api.create(&dry_run(), &generated(prefix)).await, &[NOT_OWN]).context(prefix)?;
        }
        Ok(())
    })
}

#[test]
fn server_side_apply_is_held_to_the_same() -> Result<()> {
    case(async |world| {
        let api = sheriffs(&world.a);
        let params = PatchParams::apply("kube-bind.io").force();
        world.plant("applied", None).await?;
        let apply = async |name: &str, mark| api.patch(name, &params, &Patch::Apply(sheriff(name, mark))).await;
        refused(apply("applied", Some(A)).await, &[NOT_OWN])?;
        refused(apply("applied-anew", None).await, &[NOT_OWN])?;
        apply("applied-anew", Some(A)).await?;
        apply(&named(A, "applied"), None).await?;
        Ok(())
    })
}

#[test]
fn deleting_many_deletes_none_of_anothers() -> Result<()> {
    case(async |world| {
        let admin = sheriffs(&world.plane.client());
        let all = ListParams::default().labels("many=true");
        for name in ["many", &named(A, "many")] {
            let mut object = sheriff(name, None);
            object.labels_mut().insert("many".to_owned(), "true".to_owned());
            admin.create(&PostParams::default(), &object).await?;
        }
        let ours = sheriffs(&world.a);
        refused(ours.delete_collection(&DeleteParams::default(), &all).await, &[NOT_OWN])?;
        ensure!(admin.get_opt("many").await?.is_some(), "deleted");
        let own = all.clone().fields(&format!("metadata.name={}", named(A, "many")));
        ours.delete_collection(&DeleteParams::default(), &own).await?;
        ensure!(admin.list(&all).await?.items.len() == 1, "more or less than its own");
        Ok(())
    })
}

#[test]
fn other_subresources_and_connections_are_not_for_use_elsewhere() -> Result<()> {
    case(async |world| {
        let accounts: Api<ServiceAccount> = Api::namespaced(world.a.clone(), SHARED);
        let (params, request) = (PostParams::default(), TokenRequest::default());
        let token = accounts.create_token_request("default", &params, &request);
        refused(
            token.await,
            &["no such subresource of serviceaccounts in namespace wild-west"],
        )?;
        let path = format!("/api/v1/namespaces/{SHARED}/services/any/proxy");
        let connect = world.a.request_text(http::Request::get(path).body(Vec::new())?).await;
        refused(connect, &["no such subresource of services in namespace wild-west"])
    })
}
