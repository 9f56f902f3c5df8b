//! The gRPC port: certificates that the server makes, keeps and rotates, client certificates, proxies that speak HTTP/1.1 only, and
//! how the server finds out at which URL consumers reach the Kubernetes API.

mod client_certificates;
mod cluster_info;
mod managed;
mod peer;
mod proxy;
mod rotation;
