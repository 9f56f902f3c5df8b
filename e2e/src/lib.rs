//! Real control planes for the tests, and the end-to-end suites that use them.
//!
//! A [`ControlPlane`] is an etcd, an API server and a controller manager of its own on loopback, with its own CA.
//! [`Process`] runs the project's binaries against it. Whatever either starts ends with its owner, also when the test
//! process panics or is killed. [`Provider`] and [`Consumer`] are control planes with the project installed as it ships.
//!
//! | module | what it does |
//! |---|---|
//! | [`bound`] | starts a provider and a consumer with a binding of `cowboys` |
//! | [`browser`] | runs a headless Chromium, in which a person signs in |
//! | [`bundle`] | creates APIServiceBindingBundles |
//! | [`call`] | builds the gRPC messages that programs send to the backend, also malformed ones |
//! | [`charts`] | runs Helm, and makes `deploy/` of the charts |
//! | [`claiming`] | installs a binding with permission claims by a program that is not `kubectl bind` |
//! | [`clock`] | moves the clock of a single process |
//! | [`collector`] | keeps the traces that programs send |
//! | [`container`] | runs a program in the root of an image |
//! | [`flags`] | makes the reference of the programs' flags |
//! | [`former`] | builds the programs of an earlier commit, for tests of upgrades |
//! | [`https`] | sends requests to servers of a test CA |
//! | [`images`] | finds, unpacks and pushes the images of the programs |
//! | [`guide`] | runs the commands of a page of `docs/guides` |
//! | [`issuers`] | runs OpenID Connect issuers of two makes |
//! | [`lease`] | flags of programs: how long a leader holds its Lease without renewing it |
//! | [`observe`] | makes rules of Prometheus and dashboards of one table |
//! | [`offer`] | publishes an API of its own for each test case |
//! | [`remains`] | waits until nothing of a binding is left |
//! | [`rights`] | asks the API server what a user may do |
//! | [`synk`] | runs the project's command `synk`, which applies sets of manifests |
//! | [`wildwest`] | the example API `cowboys.wildwest.dev` |
//!
//! [`Prometheus`] scrapes the programs and evaluates the rules. [`Gate`] and [`Proxy`] cut a program off from its API server, [`Nginx`] lets nothing but HTTP/1.1 through to a server, [`Liar`] answers some requests wrongly, and
//! [`Kubelet`] runs Pods from the images of the programs, because the control planes have no nodes. A [`Pair`] is two of them.

mod audit;
pub mod binaries;
pub mod bound;
pub mod browser;
pub mod bundle;
pub mod call;
pub mod charts;
pub mod claiming;
pub mod clock;
pub mod collector;
mod consumer;
pub mod container;
pub mod control_plane;
mod eventually;
pub mod flags;
pub mod former;
mod forward;
mod gate;
pub mod guide;
pub mod http;
pub mod https;
pub mod images;
pub mod issuers;
mod kubeconfig;
mod kubelet;
pub mod lease;
mod liar;
pub mod manifests;
mod network;
mod nginx;
pub mod observe;
pub mod offer;
mod pair;
pub mod pki;
pub mod process;
mod prometheus;
mod provider;
mod proxy;
pub mod remains;
pub mod rights;
mod runtime;
pub mod sdks;
pub mod synk;
pub mod wildwest;
mod workdir;

pub use audit::{Asked, Audit, Moment};
pub use consumer::Consumer;
pub use control_plane::{ControlPlane, Person, ServiceAccountClaims};
pub use eventually::{eventually, eventually_ok, holds_for};
pub use gate::Gate;
pub use kubeconfig::{Kubeconfig, User};
pub use kubelet::Kubelet;
pub use liar::{Liar, Lie};
pub use network::NetworkNamespace;
pub use nginx::Nginx;
pub use pair::Pair;
pub use process::Process;
pub use prometheus::Prometheus;
pub use provider::{Certificates, NAMESPACE, Provider, TLS_SECRET, free_port};
pub use proxy::Proxy;
pub use runtime::run;
pub use workdir::Workdir;
