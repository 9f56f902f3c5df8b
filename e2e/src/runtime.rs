//! One async runtime for all tests of a program, so that they can share control planes and clients.

use std::sync::OnceLock;

use tokio::runtime::Runtime;

/// Runs a test on the runtime that all tests of this process share.
///
/// # Panics
///
/// If the process cannot have a runtime.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let runtime = RUNTIME.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.expect("a process can have a runtime")
    });
    runtime.block_on(test)
}
