//! All SDKs under one contract: the table of cases with a scripted server, and a bind on real control planes.

mod contract;
mod headless;
mod runners;

/// Held by each test: the times of cases are measured while no control plane starts.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
