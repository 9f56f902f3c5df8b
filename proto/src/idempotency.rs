//! Which methods may be called again when nobody knows whether the first call arrived.

/// What the .proto files say of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idempotency {
    /// Reads only.
    NoSideEffects,
    /// Writes, and writing again changes nothing.
    Idempotent,
    /// Each call counts.
    Unknown,
}

/// Every method with its path, sorted by path.
const METHODS: &[(&str, Idempotency)] = &include!(concat!(env!("OUT_DIR"), "/idempotency.in"));

/// What is declared of the method under a path such as `/kubebind.v1alpha2.ExportService/GetExport`; nothing is known
/// of a path that is none of ours.
pub fn idempotency(path: &str) -> Idempotency {
    match METHODS.binary_search_by_key(&path, |(known, _)| known) {
        Ok(at) => METHODS[at].1,
        Err(_) => Idempotency::Unknown,
    }
}

/// Whether the method under this path may be called again without knowing what became of the first call.
pub fn is_idempotent(path: &str) -> bool {
    idempotency(path) != Idempotency::Unknown
}

/// The paths of all methods, sorted.
pub fn method_paths() -> impl Iterator<Item = &'static str> {
    METHODS.iter().map(|(path, _)| *path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, expect: Idempotency) {
        assert_eq!(idempotency(&format!("/kubebind.v1alpha2.{method}")), expect);
    }

    #[test]
    fn reads_writes_and_renewal_differ() {
        check("ProviderService/GetProvider", Idempotency::NoSideEffects);
        check("ExportService/WatchExports", Idempotency::NoSideEffects);
        check("BindingService/CreateBindableResourcesRequest", Idempotency::Idempotent);
        check("ExportService/DeleteExport", Idempotency::Idempotent);
        check("CredentialService/RenewKubeconfig", Idempotency::Unknown);
        check("ExportService/NoSuchMethod", Idempotency::Unknown);
    }

    #[test]
    fn only_renewal_is_undeclared() {
        let undeclared: Vec<_> = method_paths().filter(|path| !is_idempotent(path)).collect();
        assert_eq!(undeclared, ["/kubebind.v1alpha2.CredentialService/RenewKubeconfig"]);
        assert_eq!(method_paths().count(), 24);
    }
}
