//! Debug output of the one message that holds a secret.

use std::fmt;

use crate::v1alpha2::Kubeconfig;

impl fmt::Debug for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kubeconfig")
            .field(
                "kubeconfig",
                &format_args!("[{} bytes redacted]", self.kubeconfig.len()),
            )
            .field("contract_uid", &self.contract_uid)
            .field("credential_id", &self.credential_id)
            .field("expires_in", &self.expires_in)
            .field("renew_after", &self.renew_after)
            .field("expire_time", &self.expire_time)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::v1alpha2::{BindingResourceResponse, CreateBindableResourcesRequestResponse};

    #[test]
    fn debug_shows_no_kubeconfig_however_deep() {
        let kubeconfig = Kubeconfig {
            kubeconfig: Bytes::from_static(b"token: hunter2"),
            credential_id: "anchor-1".to_owned(),
            ..Kubeconfig::default()
        };
        let answer = CreateBindableResourcesRequestResponse {
            bindable_resources_request: None,
            response: Some(BindingResourceResponse {
                kubeconfig: Some(kubeconfig),
                ..BindingResourceResponse::default()
            }),
        };
        let shown = format!("{answer:?} {answer:#?}");
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(
            shown.contains("14 bytes redacted") && shown.contains("anchor-1"),
            "{shown}"
        );
    }
}
