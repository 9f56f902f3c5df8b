//! The pages of `docs/guides`, and those beside them that have commands, followed command by command on real control planes.

mod adopting;
mod composing;
mod drift;
mod flags;
mod getting_started;
mod gitops;
mod interactive;
mod moving;
mod operating;
mod people;
mod reasons;
mod restored;
mod rotating;
mod runbooks;
mod stand_in;
mod synk;
mod undelete;
mod world;
