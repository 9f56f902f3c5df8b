//! What a simulated process gets from its host: randomness, clocks and a runtime, all of which the simulator owns.
//!
//! The standard library, tokio and most crates ask the C library for random bytes, for the time and for the next IO event. This
//! crate defines `getrandom`, `clock_gettime`, `gettimeofday`, `time`, `epoll_wait` and `nanosleep` itself, so that the linker takes these
//! instead. Before [`simulate`] is called they pass every call on to the kernel. From then on random bytes come from a seed, clocks
//! show what [`set_clocks`] said last, and no thread sleeps: a runtime that would wait returns to the simulator, which learns for how
//! long, and a thread that would sleep aborts the simulator.
//!
//! Everything is global, because one operating-system process runs one seed on one thread.

mod clock;
mod fork;
mod panics;
mod poll;
mod process;
mod random;
mod sleep;

pub use clock::{Clocks, set_clocks};
pub use fork::in_child;
pub use process::{Process, Run};

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the functions of the C library are simulated.
static SIMULATING: AtomicBool = AtomicBool::new(false);

/// Begins the simulation in this operating-system process, for good, and sets a panic hook that records panics. Must be called before
/// anything asks for random bytes whose values matter, so first in `main`.
pub fn simulate(seed: u64, clocks: Clocks) {
    random::seed(seed);
    panics::record();
    set_clocks(clocks);
    SIMULATING.store(true, Ordering::Relaxed);
}

/// Random bytes are those of this seed from now on.
pub fn reseed(seed: u64) {
    random::seed(seed);
}

/// Whether [`simulate`] was called.
pub fn is_simulating() -> bool {
    SIMULATING.load(Ordering::Relaxed)
}
