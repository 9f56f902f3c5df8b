//! Builds the OCI images of the programs, reads them, and makes releases.
//!
//! An image holds one program and the few files that the program reads from its surroundings, among them the shared libraries of
//! two Debian packages. The same sources and packages give the same image: its files are sorted, and have the time of the commit.
//!
//! | module | what it does |
//! |---|---|
//! | [`program`] | the programs that have images |
//! | [`platform`] | the platforms that images are built for |
//! | [`workspace`] | what cargo and git know of the sources |
//! | [`compile`] | builds the programs |
//! | `libraries` | reads the shared libraries that the programs need |
//! | `executable` | separates a program from its debug information |
//! | `dependencies` | the crates that a program is made of |
//! | `sbom` | writes these crates down, as CycloneDX and as `cargo auditable` does |
//! | `notices` | collects the license texts of these crates |
//! | `files` | the files of an image |
//! | `layer` | packs files as a layer |
//! | `configuration` | says how the program of an image is run |
//! | `layout` | writes an artifact, such as an image, as an OCI image layout |
//! | [`image`] | reads and unpacks an image |
//! | [`mod@build`] | builds images by all of these |
//! | [`release`] | makes a release: images, charts, archives, checksums and signatures |

pub mod build;
pub mod compile;
mod configuration;
mod dependencies;
mod executable;
mod files;
pub mod image;
mod layer;
mod layout;
mod libraries;
mod notices;
pub mod platform;
pub mod program;
pub mod release;
mod sbom;
pub mod workspace;

pub use build::{Built, Options, build};
pub use compile::Profile;
pub use image::Image;
pub use platform::Platform;
pub use program::Program;
pub use workspace::Workspace;
