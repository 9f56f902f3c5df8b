//! The images of the programs: what is in them, that their programs work in them, and that registries take them. And releases.

mod content;
mod inside;
mod registry;
mod release;
mod responder;
mod sbom;
