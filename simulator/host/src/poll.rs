//! The wait of a runtime for IO or its next timer: while a simulation runs, it ends at once and tells how long it would have been.

use std::{
    sync::atomic::{AtomicI32, AtomicU32, Ordering},
    task::Waker,
    time::Duration,
};

use libc::{SYS_epoll_pwait, c_int, epoll_event};
use parking_lot::Mutex;

use crate::is_simulating;

/// A process that is polled more often than this in one run never waits. A runtime runs 61 tasks between two polls.
const POLLS_MAX: u32 = 20_000;
/// No wait was observed since the last call of [`begin`].
const BUSY: i32 = i32::MIN;

/// The wait that the running process wants, in milliseconds; -1 if it has no timer.
static WAIT: AtomicI32 = AtomicI32::new(BUSY);
/// Polls without a wait since [`begin`]. A runtime polls after every few dozen tasks, and before each wait.
static POLLS: AtomicU32 = AtomicU32::new(0);

/// Wakes the root task of the running process, so that the run ends.
static ROOT: Mutex<Option<Waker>> = parking_lot::const_mutex(None);

/// What a process does after it was polled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It has work to do.
    None,
    /// It waits for its next timer, or forever.
    For(Option<Duration>),
}

/// Begins to observe one run.
pub(crate) fn begin() {
    WAIT.store(BUSY, Ordering::Relaxed);
    POLLS.store(0, Ordering::Relaxed);
}

/// What the runtime wanted last.
pub(crate) fn wait() -> Wait {
    match WAIT.load(Ordering::Relaxed) {
        BUSY => Wait::None,
        millis => Wait::For(u64::try_from(millis).ok().map(Duration::from_millis)),
    }
}

/// Whether the run is over: the runtime waits, or never will.
pub(crate) fn is_over() -> bool {
    wait() != Wait::None || POLLS.load(Ordering::Relaxed) > POLLS_MAX
}

/// Sets the waker of the root task, which is woken when the run is over.
pub(crate) fn set_root(waker: &Waker) {
    let mut root = ROOT.lock();
    if !root.as_ref().is_some_and(|known| known.will_wake(waker)) {
        *root = Some(waker.clone());
    }
}

/// Forgets the waker of the root task.
pub(crate) fn end() {
    *ROOT.lock() = None;
}

/// Replaces `epoll_wait` of the C library. Simulated processes have no descriptors that anything happens to.
///
/// # Safety
/// `events` must be valid for writes of `events_max` events, as for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn epoll_wait(
    descriptor: c_int,
    events: *mut epoll_event,
    events_max: c_int,
    timeout: c_int,
) -> c_int {
    if !is_simulating() {
        // Without a mask of signals `epoll_pwait` is `epoll_wait`, which the kernel lacks on some architectures.
        let mask = std::ptr::null::<libc::sigset_t>();
        // SAFETY: the arguments are those of the caller, who follows the contract of the C library. The size of no mask is not read.
        let outcome = unsafe {
            libc::syscall(
                SYS_epoll_pwait,
                descriptor,
                events,
                events_max,
                timeout,
                mask,
                size_of::<libc::sigset_t>(),
            )
        };
        return c_int::try_from(outcome).unwrap_or(-1);
    }
    POLLS.fetch_add(1, Ordering::Relaxed);
    WAIT.store(if timeout == 0 { BUSY } else { timeout.max(-1) }, Ordering::Relaxed);
    if is_over()
        && let Some(root) = &*ROOT.lock()
    {
        root.wake_by_ref();
    }
    0
}
