//! Free ports on loopback.

use std::{
    collections::HashSet,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    ops::RangeInclusive,
    sync::LazyLock,
};

use anyhow::{Result, bail};
use parking_lot::Mutex;

/// The range of the ports. It lies below the range from which the kernel takes the local ports of connections, so that the
/// port of a server that is down for a while stays free, and below the ports that Services open on nodes (30000 and above):
/// `kubectl bind dev up` treats an address with one of these in another way.
const RANGE: RangeInclusive<u16> = 20_000..=29_999;

const TRIES: usize = 1_000;

/// Handed out by this process, where several control planes and servers may start at once.
static TAKEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// An address that nobody listens on now. Another process may take it before it is used: whoever starts a server there
/// must be ready to try another.
pub(crate) fn free() -> Result<SocketAddr> {
    Ok(free_listener()?.local_addr()?)
}

/// Listens at an address on loopback. Connections wait until somebody accepts them.
pub(crate) fn free_listener() -> Result<TcpListener> {
    for _ in 0..TRIES {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, rand::random_range(RANGE)));
        if TAKEN.lock().insert(address.port())
            && let Ok(listener) = TcpListener::bind(address)
        {
            return Ok(listener);
        }
    }
    bail!("no free port on loopback between {} and {}", RANGE.start(), RANGE.end())
}
