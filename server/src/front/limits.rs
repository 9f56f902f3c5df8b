//! How much of the server one caller may use: calls a second, calls at once, streams, sizes and time.

use std::time::Duration;

mod deadline;
mod rate;
mod slots;

pub use deadline::Deadline;
pub use rate::Rate;
pub use slots::{Slot, Slots};

/// Largest request that is decoded.
pub const REQUEST_BYTES_MAX: usize = 256 * 1024;
/// Largest answer, which stays below what a client takes that sets nothing.
pub const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024 - 64 * 1024;
/// Largest list of headers.
pub const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Longest time that a call waits for a controller.
pub const WAIT_MAX: Duration = Duration::from_mins(2);
/// How long a call waits that does not say.
pub const WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// How long the API server may take to say who calls and what they may do.
pub(super) const REVIEW_MAX: Duration = Duration::from_secs(5);

/// Tokens that are being checked at the same time: each check has a connection that is open already. More at once would open
/// more, and cost the API server a handshake each, just when all agents come back.
pub(super) const REVIEWS_MAX: usize = 16;
/// The same of tokens that were good before. Strangers take none of these places, however many they are.
pub(super) const REVIEWS_AGAIN_MAX: usize = 8;
/// How long a token waits until it is checked.
pub(super) const REVIEW_WAIT_MAX: Duration = Duration::from_secs(10);

/// Calls a second of one principal, and how many may come at once.
pub(super) const PRINCIPAL_RATE: (u32, u32) = (100, 200);
/// The same for one peer address without a verified token. Many agents may share a proxy's address.
pub(super) const PEER_RATE: (u32, u32) = (200, 1_000);
/// Calls of one principal that are answered at the same time.
pub(super) const PRINCIPAL_CALLS_MAX: usize = 64;
/// Calls of all that are answered at the same time.
pub(super) const CALLS_MAX: usize = 2_048;
/// Streams of one principal, and of one principal for one contract: renewing a token overlaps two.
pub(super) const STREAMS_PER_PRINCIPAL: usize = 4;
pub(super) const STREAMS_PER_CONTRACT: usize = 2;
/// Snapshots that are being sent at the same time.
pub(super) const SNAPSHOTS_MAX: usize = 64;
