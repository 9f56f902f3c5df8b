//! Random bytes: those of a seed while a simulation runs, else those of the kernel.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::{SYS_getrandom, c_long, c_uint, c_void, size_t, ssize_t};

use crate::is_simulating;

/// State of the generator. SplitMix64: any state is good, and one word is enough for one thread.
static STATE: AtomicU64 = AtomicU64::new(0);

pub(crate) fn seed(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
}

fn next() -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut word = STATE.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Replaces `getrandom` of the C library.
///
/// # Safety
/// `buffer` must be valid for writes of `length` bytes, as for the function of the C library.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(buffer: *mut c_void, length: size_t, flags: c_uint) -> ssize_t {
    if !is_simulating() {
        // SAFETY: the arguments are those of the caller, who follows the contract of the C library.
        let read: c_long = unsafe { libc::syscall(SYS_getrandom, buffer, length, flags) };
        return ssize_t::try_from(read).unwrap_or(-1);
    }
    let mut written = 0;
    while written < length {
        let word = next().to_le_bytes();
        let part = word.len().min(length - written);
        // SAFETY: the caller says that the buffer has `length` bytes, and `written` is less.
        let place = unsafe { buffer.cast::<u8>().add(written) };
        // SAFETY: `part` bytes are left in the buffer, and the word is a local variable that the buffer cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(word.as_ptr(), place, part) };
        written += part;
    }
    length.cast_signed()
}

/// Replaces `getentropy` of the C library.
///
/// # Safety
/// As for [`getrandom`].
#[unsafe(no_mangle)]
unsafe extern "C" fn getentropy(buffer: *mut c_void, length: size_t) -> libc::c_int {
    // SAFETY: the caller follows the contract of the C library, which is the same.
    let read = unsafe { getrandom(buffer, length, 0) };
    if read == length.cast_signed() { 0 } else { -1 }
}
