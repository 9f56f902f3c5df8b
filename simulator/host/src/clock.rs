//! Clocks: what the simulator set while a simulation runs, else those of the kernel.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use libc::{
    CLOCK_BOOTTIME, CLOCK_REALTIME, CLOCK_REALTIME_COARSE, SYS_clock_gettime, c_int, c_void, clockid_t, time_t,
    timespec, timeval,
};

use crate::is_simulating;

const NANOS: i64 = 1_000_000_000;

/// Nanoseconds of the monotonic clock.
static MONOTONIC: AtomicI64 = AtomicI64::new(0);
/// Nanoseconds of the wall clock since 1970.
static WALL: AtomicI64 = AtomicI64::new(0);

/// The clocks of a simulated process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// Time since the host started, which never goes back and which timers follow.
    pub monotonic: Duration,
    /// Time since 1970 as the process believes it; it may jump.
    pub wall: Duration,
}

/// Sets what all clocks of this operating-system process show. The simulator calls it before it runs a simulated process.
pub fn set_clocks(clocks: Clocks) {
    let nanos = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    MONOTONIC.store(nanos(clocks.monotonic), Ordering::Relaxed);
    WALL.store(nanos(clocks.wall), Ordering::Relaxed);
}

fn is_wall(clock: clockid_t) -> bool {
    matches!(clock, CLOCK_REALTIME | CLOCK_REALTIME_COARSE)
}

/// Replaces `clock_gettime` of the C library.
///
/// # Safety
/// `time` must be valid for a write, as for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // CPU clocks are real: nothing but the simulator itself measures with them.
    let is_cpu_clock = clock > libc::CLOCK_MONOTONIC && clock < libc::CLOCK_MONOTONIC_RAW || clock > CLOCK_BOOTTIME;
    if !is_simulating() || is_cpu_clock {
        // SAFETY: the arguments are those of the caller, who follows the contract of the C library.
        let outcome = unsafe { libc::syscall(SYS_clock_gettime, clock, time) };
        return c_int::try_from(outcome).unwrap_or(-1);
    }
    let nanos = if is_wall(clock) { &WALL } else { &MONOTONIC }.load(Ordering::Relaxed);
    let shown = timespec {
        tv_sec: nanos / NANOS,
        tv_nsec: nanos % NANOS,
    };
    // SAFETY: the caller says that the pointer is valid for a write.
    unsafe { time.write(shown) };
    0
}

/// Replaces `gettimeofday` of the C library.
///
/// # Safety
/// `time` must be null or valid for a write, as for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn gettimeofday(time: *mut timeval, _zone: *mut c_void) -> c_int {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of a local variable.
    let outcome = unsafe { clock_gettime(CLOCK_REALTIME, &raw mut now) };
    if outcome == 0 && !time.is_null() {
        let shown = timeval {
            tv_sec: now.tv_sec,
            tv_usec: now.tv_nsec / 1000,
        };
        // SAFETY: the caller says that a pointer that is not null is valid for a write.
        unsafe { time.write(shown) };
    }
    outcome
}

/// Replaces `time` of the C library.
///
/// # Safety
/// `time` must be null or valid for a write, as for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn time(time: *mut time_t) -> time_t {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is that of a local variable.
    let outcome = unsafe { clock_gettime(CLOCK_REALTIME, &raw mut now) };
    if outcome != 0 {
        return -1;
    }
    if !time.is_null() {
        // SAFETY: the caller says that a pointer that is not null is valid for a write.
        unsafe { time.write(now.tv_sec) };
    }
    now.tv_sec
}
