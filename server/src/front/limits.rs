//! The limits of one caller and of all: calls at the same time, sizes and waiting times. Those of connections are settings
//! ([`crate::settings::ConnectionLimits`]), and so are those of tenants ([`crate::limits`]).

use std::time::Duration;

mod permits;
mod rate;

pub(crate) use permits::{Permit, Permits};
pub(crate) use rate::{CallerRates, Rate};

/// Largest request that is decoded, in bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 256 * 1024;
/// Largest answer, in bytes. It stays below the limit of a gRPC client that sets none.
pub(crate) const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024 - 64 * 1024;
/// Largest list of headers, in bytes.
pub(crate) const HEADER_BYTES_MAX: u32 = 16 * 1024;
/// Longest time that a call waits for a controller.
pub(crate) const WAIT_MAX: Duration = Duration::from_mins(2);
/// How long a call waits for a controller if it sets no `wait`.
pub(crate) const WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// How long the API server may take to answer a TokenReview or a SubjectAccessReview.
pub(crate) const REVIEW_MAX: Duration = Duration::from_secs(5);

/// Tokens of unknown callers that are checked at the same time. More checks would open more connections, each with a handshake,
/// at the very moment when all agents reconnect.
pub(crate) const REVIEWS_MAX: usize = 16;
/// Tokens that were valid before and are checked at the same time. Unknown callers take none of these permits.
pub(crate) const REVIEWS_AGAIN_MAX: usize = 8;
/// How long a token waits for the permit to be checked.
pub(crate) const REVIEW_WAIT_MAX: Duration = Duration::from_secs(10);

/// Calls a second without a verified token from one peer address, and the burst. Many agents may share a proxy's address.
pub(crate) const PEER_RATE: (u32, u32) = (200, 1_000);
/// Bytes of all messages that a call of an open method, which needs no token, may send.
pub(crate) const OPEN_REQUEST_BYTES_MAX: usize = 64 * 1024;
/// Longest time of a call of an open method, its stream of answers included.
pub(crate) const OPEN_CALL_MAX: Duration = Duration::from_mins(1);
/// Calls of open methods that one peer address may have under way at the same time.
pub(crate) const OPEN_CALLS_PER_PEER: usize = 16;
/// Calls of open methods that may be under way at the same time.
pub(crate) const OPEN_CALLS_MAX: usize = 2_048;
/// Lines of the audit log a second about calls without a valid token, and the burst: strangers must not fill the disk.
pub(crate) const STRANGERS_AUDITED_RATE: (u32, u32) = (5, 100);
/// Lines of the audit log a second about calls of one username that were refused or failed, and the burst, for the same reason.
/// A caller without any right can have calls fail as well: it gives them up before they are answered.
pub(crate) const UNSUCCESSFUL_AUDITED_RATE: (u32, u32) = (1, 60);
/// Calls of one principal that may be under way at the same time.
pub(crate) const PRINCIPAL_CALLS_MAX: usize = 64;
/// Calls of all callers that may be under way at the same time.
pub(crate) const CALLS_MAX: usize = 2_048;
/// Streams, each of which is a call, that one HTTP/2 connection may have open. An HTTP/1.1 connection has one call at a time.
pub(crate) const STREAMS_PER_CONNECTION: u32 = 256;
/// A stream ends at this age, or up to a fifth earlier, so that clients spread over the replicas.
pub(crate) const STREAM_AGE_MAX: Duration = Duration::from_mins(30);
/// Snapshots that are being sent at the same time.
pub(crate) const SNAPSHOTS_MAX: usize = 64;
