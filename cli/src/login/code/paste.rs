//! Lines that the user pastes on standard input.

use std::{io::BufRead as _, thread};

use tokio::sync::mpsc;

/// Reads lines of standard input until it ends. The thread is not waited for: a read of a terminal cannot be given up.
pub(crate) fn pasted_lines() -> mpsc::UnboundedReceiver<String> {
    let (lines, pasted) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if line.trim().is_empty() {
                continue;
            }
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    pasted
}
