//! The limit on open files and sockets of the process.

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};

/// Raises the soft limit on open files to the hard limit, and returns that. The soft limit is often 1,024, for programs that use
/// `select`; with it, a busy server or konnector could not open further connections.
pub fn raise() -> Result<u64, Errno> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_what_the_hard_one_allows() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, hard.min(1_024), hard).unwrap();
        assert_eq!(raise(), Ok(hard));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE), Ok((hard, hard)));
    }
}
