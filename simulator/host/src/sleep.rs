//! Sleeping threads: a simulation has one thread, which never sleeps, so that shipped code that puts its thread to sleep is an error.

use std::io::Error;

use libc::{SYS_clock_nanosleep, SYS_nanosleep, c_int, clockid_t, timespec};

use crate::is_simulating;

/// Ends the operating-system process if it simulates: real time would pass, and all processes of the world would stand still.
fn refuse() {
    if is_simulating() {
        eprintln!("a thread sleeps while the simulator runs: the shipped code must wait by a timer of its runtime");
        std::process::abort();
    }
}

/// Replaces `nanosleep` of the C library.
///
/// # Safety
/// The pointers must be valid, as for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn nanosleep(time: *const timespec, left: *mut timespec) -> c_int {
    refuse();
    // SAFETY: the arguments are those of the caller, who follows the contract of the C library.
    let outcome = unsafe { libc::syscall(SYS_nanosleep, time, left) };
    c_int::try_from(outcome).unwrap_or(-1)
}

/// Replaces `clock_nanosleep` of the C library, which returns the number of an error instead of setting it.
///
/// # Safety
/// The pointers must be valid, as for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_nanosleep(
    clock: clockid_t,
    flags: c_int,
    time: *const timespec,
    left: *mut timespec,
) -> c_int {
    refuse();
    // SAFETY: the arguments are those of the caller, who follows the contract of the C library.
    let outcome = unsafe { libc::syscall(SYS_clock_nanosleep, clock, flags, time, left) };
    if outcome == 0 {
        0
    } else {
        Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL)
    }
}
