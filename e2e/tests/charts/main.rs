//! The charts of `deploy/charts`: what they render, without a cluster, and installed by Helm on real control planes.

mod guide;
mod kills;
mod life;
mod load;
mod names;
mod network;
mod refused;
mod rendered;
mod values;
mod world;
