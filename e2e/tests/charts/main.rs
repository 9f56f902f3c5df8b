//! The charts of `deploy/charts`: what they render, without a cluster, and installed by Helm on real control planes.

mod guide;
mod life;
mod names;
mod network;
mod refused;
mod rendered;
mod values;
mod world;
