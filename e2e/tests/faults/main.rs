//! Faults: programs killed at random moments, watches that expired, others who write, a consumer that lost its objects, backups
//! that are restored, and input that is unlucky rather than wrong. After each the same holds: nothing foreign is written, nothing is
//! lost, nothing is left behind.

mod clocks;
mod crowds;
mod expired_watch;
mod fights;
mod foreign;
mod holder;
mod random_kills;
mod restored_consumer;
mod restores;
