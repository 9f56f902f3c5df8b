//! What the kernel knows of a running program.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result};

/// Clock ticks of a second, as Linux counts the time of programs for others to read.
const TICKS: f64 = 100.0;

/// How much of the memory a program has, and has had at most since its start or [`forget_peak`], in MiB.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    pub(super) rss_mib: f64,
    pub(super) peak_mib: f64,
}

/// The memory of a program.
pub(super) fn memory(pid: u32) -> Result<Memory> {
    memory_in(&read(pid, "status")?).with_context(|| format!("process {pid} has ended"))
}

/// Has the kernel note anew the most memory that a program has.
pub(super) fn forget_peak(pid: u32) -> Result<()> {
    let path = file(pid, "clear_refs");
    fs::write(&path, "5").with_context(|| format!("cannot write {}", path.display()))
}

/// Processor time that a program has taken so far, user and system, in seconds.
pub(super) fn cpu_seconds(pid: u32) -> Result<f64> {
    #[expect(clippy::cast_precision_loss, reason = "nothing here runs for 2^52 ticks")]
    let ticks = ticks(pid)? as f64;
    Ok(ticks / TICKS)
}

/// The same of several, of which one that has ended takes no more.
pub(super) fn cpu_seconds_of_all(pids: impl IntoIterator<Item = u32>) -> f64 {
    pids.into_iter().filter_map(|pid| cpu_seconds(pid).ok()).sum()
}

/// The same in clock ticks.
pub(super) fn ticks(pid: u32) -> Result<u64> {
    ticks_in(&read(pid, "stat")?).context("a stat of another form")
}

/// Threads of a program.
pub(super) fn threads(pid: u32) -> Result<usize> {
    let status = read(pid, "status")?;
    let threads = field(&status, "Threads").and_then(|value| value.parse().ok());
    threads.context("a status of another form")
}

/// Open sockets of a program, whatever they lead to.
pub(super) fn sockets(pid: u32) -> Result<usize> {
    Ok(inodes(pid)?.len())
}

/// Connections of a program to a port, on loopback.
pub(super) fn connections(pid: u32, port: u16) -> Result<usize> {
    let of_program = inodes(pid)?;
    let table = read(pid, "net/tcp")?;
    let to_port = table.lines().filter_map(connection_in);
    Ok(to_port
        .filter(|(remote, inode)| *remote == port && of_program.contains(inode))
        .count())
}

/// Numbers of the sockets that a program has open.
fn inodes(pid: u32) -> Result<Vec<u64>> {
    let path = file(pid, "fd");
    let files = fs::read_dir(&path).with_context(|| format!("cannot read {}", path.display()))?;
    // One may be closed meanwhile.
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    Ok(links.filter_map(|link| socket_in(link.to_str()?)).collect())
}

fn file(pid: u32, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/{name}"))
}

fn read(pid: u32, name: &str) -> Result<String> {
    let path = file(pid, name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

fn memory_in(status: &str) -> Option<Memory> {
    let mib = |name| {
        let kib: f64 = field(status, name)?.strip_suffix("kB")?.trim().parse().ok()?;
        Some(kib / 1024.0)
    };
    Some(Memory {
        rss_mib: mib("VmRSS")?,
        peak_mib: mib("VmHWM")?,
    })
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    status.lines().find_map(value).map(str::trim)
}

fn ticks_in(stat: &str) -> Option<u64> {
    // The name, in parentheses, may hold anything; user and system time are the 12th and 13th word after it.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace().skip(11);
    let mut word = || words.next()?.parse::<u64>().ok();
    Some(word()? + word()?)
}

fn socket_in(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// Remote port and number of an established connection.
fn connection_in(line: &str) -> Option<(u16, u64)> {
    let mut words = line.split_whitespace().skip(2);
    let (_, port) = words.next()?.split_once(':')?;
    let established = words.next()? == "01";
    let inode = words.nth(5)?.parse().ok()?;
    let port = u16::from_str_radix(port, 16).ok()?;
    established.then_some((port, inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_in_mib() {
        let status = "Name:\tVmRSS:\nVmHWM:\t    4096 kB\nVmRSS:\t    1536 kB\nThreads:\t7\n";
        let expect = Memory {
            rss_mib: 1.5,
            peak_mib: 4.0,
        };
        assert_eq!(memory_in(status), Some(expect));
        assert_eq!(field(status, "Threads"), Some("7"));
        // A zombie has none.
        assert_eq!(memory_in("Name:\tgone\nThreads:\t1\n"), None);
    }

    #[test]
    fn user_and_system_time_are_found_whatever_the_name() {
        let stat = "41 (a ) S b) S 1 2 3 4 5 6 7 8 9 10 1100 22 0 0 20 0 9 0";
        assert_eq!(ticks_in(stat), Some(1122));
        assert_eq!(ticks_in("41 (short) S 1"), None);
    }

    #[test]
    fn a_connection_is_told_from_a_listener_and_from_a_file() {
        let line = |remote: &str, state: &str| {
            format!(
                "   0: 0100007F:A1B2 {remote} {state} 00000000:00000000 00:00000000 00000000     0        0 1681 1 0"
            )
        };
        assert_eq!(connection_in(&line("0100007F:192B", "01")), Some((6443, 1681)));
        assert_eq!(connection_in(&line("00000000:0000", "0A")), None);
        assert_eq!(connection_in("  sl  local_address rem_address   st tx_queue"), None);
        assert_eq!(socket_in("socket:[1681]"), Some(1681));
        assert_eq!(socket_in("/tmp/socket:[1681]"), None);
    }

    #[test]
    fn this_program_is_read() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let pid = std::process::id();
        assert_eq!(connections(pid, port).unwrap(), 0);
        let _client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert_eq!(connections(pid, port).unwrap(), 1);
        assert!(sockets(pid).unwrap() >= 2 && threads(pid).unwrap() >= 1);
        forget_peak(pid).unwrap();
        let Memory { rss_mib, peak_mib } = memory(pid).unwrap();
        assert!(rss_mib > 0.0 && peak_mib > 0.0);
        assert!(cpu_seconds(pid).is_ok());
    }
}
