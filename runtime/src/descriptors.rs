//! How many files and sockets the process may have open.

use nix::{
    errno::Errno,
    sys::resource::{Resource, getrlimit, setrlimit},
};

/// Raises the soft limit to the hard one, and answers it. The soft limit is low, often 1,024, for the sake of programs that
/// use `select`; ours would stop to accept connections, or to make them, long before they run out of anything else.
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
