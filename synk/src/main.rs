//! synk applies sets of Kubernetes manifests, keeps versions of them, and prunes.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
