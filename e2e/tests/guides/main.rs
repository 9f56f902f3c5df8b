//! The pages of `docs/guides`, followed command by command on real control planes.

mod adopting;
mod getting_started;
mod interactive;
mod links;
mod people;
mod reasons;
mod rotating;
mod synk;
mod undelete;
mod world;
