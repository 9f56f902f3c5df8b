//! synk: applies sets of Kubernetes manifests, versioned and pruned.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
