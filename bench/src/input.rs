//! Reads the commands of the process that started this program: lines of standard input.

use std::{io, thread};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The lines that say something, until there are no more. They are read by a thread, which holds up no end of the program.
pub(crate) fn lines() -> UnboundedReceiver<io::Result<String>> {
    let (sender, lines) = unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lines() {
            if matches!(&line, Ok(line) if line.trim().is_empty()) {
                continue;
            }
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}
