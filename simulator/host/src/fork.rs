//! Children of a process that has prepared what they all need.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use libc::c_int;

/// Forks, does the work in the child, whose exit code it returns, and waits for the child. Returns that code; `None` if a signal ended
/// the child. A child that panics exits with 101.
///
/// In the child no other thread goes on, and what they had locked stays so. So a process is refused that has more threads than this one and
/// those that only wait for its end, of which there are `waiting`.
pub fn in_child(waiting: usize, work: impl FnOnce() -> u8) -> io::Result<Option<u8>> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 + waiting {
        return Err(io::Error::other("a process of several threads cannot fork"));
    }
    // SAFETY: no other thread works or has locked anything, so that the child may do all that this process may.
    let child = unsafe { libc::fork() };
    match child {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(101);
            // SAFETY: nothing of the parent's that still has to be done, such as writing out a buffer, is done twice.
            unsafe { libc::_exit(c_int::from(code)) }
        }
        child => wait(child),
    }
}

fn wait(child: libc::pid_t) -> io::Result<Option<u8>> {
    let mut status = 0;
    loop {
        // SAFETY: the pointer is that of a local variable.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if ended == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    let code = libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
    Ok(code.and_then(|code| u8::try_from(code).ok()))
}
