//! Attacks, by somebody who holds what a consumer is given and nothing else: its kubeconfig, and its tokens for gRPC.
//! Everything is refused but what is listed as its own. And attacks by a provider, who holds its own cluster and nothing of
//! the consumer's.

mod accounts;
mod attempt;
mod docs;
mod generate;
mod grpc;
mod kubernetes;
mod modes;
mod offers;
mod provider;
mod reads;
mod requests;
mod rights;
mod served;
mod spaces;
mod tenant;
mod wide;
mod world;
