//! The pages of `docs/guides`, followed command by command on real control planes.

mod adopting;
mod getting_started;
mod gitops;
mod interactive;
mod links;
mod moving;
mod people;
mod reasons;
mod restored;
mod rotating;
mod synk;
mod undelete;
mod world;
